package query

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/awserr"
)

// ContentType is that of the query protocol's responses.
const ContentType = "text/xml;charset=UTF-8"

// Namespace is the XML namespace of EC2 responses.
const Namespace = "http://ec2.amazonaws.com/doc/2016-11-15/"

// Write answers an action: <ActionResponse><requestId/>...</ActionResponse>,
// the fields being those of body, which must be a struct or a pointer to one.
func Write(w http.ResponseWriter, action, requestID string, body any) error {
	var buf bytes.Buffer
	start := xml.StartElement{
		Name: xml.Name{Local: action + "Response"},
		Attr: []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: Namespace}},
	}
	if err := xml.NewEncoder(&buf).EncodeElement(body, start); err != nil {
		return fmt.Errorf("encoding the response to %s: %w", action, err)
	}
	head, rest, _ := bytes.Cut(buf.Bytes(), []byte(">"))
	return Send(w, ContentType, http.StatusOK, requestID, fmt.Appendf(nil, "%s%s><requestId>%s</requestId>%s", xml.Header, head, requestID, rest))
}

// WriteError answers a refusal in EC2's error document.
func WriteError(w http.ResponseWriter, requestID string, refusal *awserr.Error) error {
	type item struct {
		Code    string
		Message string
	}
	doc := struct {
		XMLName   xml.Name `xml:"Response"`
		Errors    []item   `xml:"Errors>Error"`
		RequestID string
	}{Errors: []item{{refusal.Code, refusal.Message}}, RequestID: requestID}
	out, err := xml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encoding the error %s: %w", refusal.Code, err)
	}
	return Send(w, ContentType, refusal.HTTPStatus(), requestID, append([]byte(xml.Header), out...))
}

// Responses of more than firstRead bytes wait for pause before they are sent.
//
// An answer within microseconds, which AWS over a network never gives, meets a
// race in the SDK: it closes the request's body as soon as the response's head
// is there, and if the HTTP transport has not yet looked for the body's end by
// then, the transport takes that for a write error and closes the connection
// (smithy-go, safeWriteToReadCloser.WriteTo). What the client has not read so
// far is lost then, and it repeats a call that was carried out. The transport
// reads 4096 bytes at once, the head among them; less than that is never lost.
const (
	firstRead = 3072
	pause     = 10 * time.Millisecond
)

// Send answers with a whole document.
func Send(w http.ResponseWriter, contentType string, status int, requestID string, doc []byte) error {
	if len(doc) > firstRead {
		time.Sleep(pause)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(doc)))
	w.Header().Set("x-amzn-RequestId", requestID)
	w.WriteHeader(status)
	_, err := w.Write(doc)
	return err
}
