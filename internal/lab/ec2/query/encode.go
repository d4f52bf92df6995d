package query

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/awserr"
)

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
	return Send(w, http.StatusOK, requestID, fmt.Appendf(nil, "%s%s><requestId>%s</requestId>%s", xml.Header, head, requestID, rest))
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
	return Send(w, refusal.HTTPStatus(), requestID, append([]byte(xml.Header), out...))
}

// Send answers with an XML document.
func Send(w http.ResponseWriter, status int, requestID string, doc []byte) error {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(doc)))
	w.Header().Set("x-amzn-RequestId", requestID)
	w.WriteHeader(status)
	_, err := w.Write(doc)
	return err
}
