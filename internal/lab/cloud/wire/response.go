package wire

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// The content types of responses.
const (
	contentXML  = "text/xml;charset=UTF-8"
	contentJSON = "application/x-amz-json-1.1"
)

// The XML namespaces of responses.
const (
	namespaceEC2 = "http://ec2.amazonaws.com/doc/2016-11-15/"
	namespaceSTS = "https://sts.amazonaws.com/doc/2011-06-15/"
	namespaceIAM = "https://iam.amazonaws.com/doc/2010-05-08/"
	namespaceELB = "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/"

	namespaceClassicELB = "http://elasticloadbalancing.amazonaws.com/doc/" + ClassicVersion + "/"
)

// writeEC2 answers in EC2's variant of the query protocol:
// <ActionResponse><requestId/>...</ActionResponse>, with list elements in <item>.
func writeEC2(w http.ResponseWriter, action, requestID string, body any) error {
	start := xml.StartElement{
		Name: xml.Name{Local: action + "Response"},
		Attr: []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: namespaceEC2}},
	}
	out, err := marshalAs(start, body)
	if err != nil {
		return err
	}
	head, rest, _ := bytes.Cut(out, []byte(">"))
	return send(w, contentXML, http.StatusOK, requestID, fmt.Appendf(nil, "%s%s><requestId>%s</requestId>%s", xml.Header, head, requestID, rest))
}

func writeEC2Error(w http.ResponseWriter, requestID string, refusal *Error) error {
	type item struct {
		Code    string
		Message string
	}
	return sendXML(w, refusal.HTTPStatus(), requestID, struct {
		XMLName   xml.Name `xml:"Response"`
		Errors    []item   `xml:"Errors>Error"`
		RequestID string
	}{Errors: []item{{refusal.Code, refusal.Message}}, RequestID: requestID})
}

// writeQuery answers in the query protocol:
// <ActionResponse><ActionResult>...</ActionResult><ResponseMetadata/></ActionResponse>, with list elements
// in <member>.
func writeQuery(namespace string) func(w http.ResponseWriter, action, requestID string, body any) error {
	return func(w http.ResponseWriter, action, requestID string, body any) error {
		result, err := marshalAs(xml.StartElement{Name: xml.Name{Local: action + "Result"}}, body)
		if err != nil {
			return err
		}
		return sendXML(w, http.StatusOK, requestID, struct {
			XMLName xml.Name
			Xmlns   string `xml:"xmlns,attr"`
			Result  []byte `xml:",innerxml"`
		}{
			XMLName: xml.Name{Local: action + "Response"}, Xmlns: namespace,
			Result: fmt.Appendf(result, "<ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata>", requestID),
		})
	}
}

func writeQueryError(namespace string) func(w http.ResponseWriter, requestID string, refusal *Error) error {
	return func(w http.ResponseWriter, requestID string, refusal *Error) error {
		return sendXML(w, refusal.HTTPStatus(), requestID, struct {
			XMLName   xml.Name `xml:"ErrorResponse"`
			Xmlns     string   `xml:"xmlns,attr"`
			Type      string   `xml:"Error>Type"`
			Code      string   `xml:"Error>Code"`
			Message   string   `xml:"Error>Message"`
			RequestID string   `xml:"RequestId"`
		}{Xmlns: namespace, Type: "Sender", Code: refusal.Code, Message: refusal.Message, RequestID: requestID})
	}
}

// writeS3 answers with one document, whose name is that of body.
func writeS3(w http.ResponseWriter, _, requestID string, body any) error {
	w.Header().Set("x-amz-request-id", requestID)
	return sendXML(w, http.StatusOK, requestID, body)
}

func writeS3Error(w http.ResponseWriter, requestID string, refusal *Error) error {
	w.Header().Set("x-amz-request-id", requestID)
	return sendXML(w, refusal.HTTPStatus(), requestID, struct {
		XMLName   xml.Name `xml:"Error"`
		Code      string
		Message   string
		RequestID string `xml:"RequestId"`
	}{Code: refusal.Code, Message: refusal.Message, RequestID: requestID})
}

// writeJSON answers in the JSON 1.1 protocol.
func writeJSON(w http.ResponseWriter, _, requestID string, body any) error {
	return sendJSON(w, http.StatusOK, requestID, body)
}

func writeJSONError(w http.ResponseWriter, requestID string, refusal *Error) error {
	return sendJSON(w, refusal.HTTPStatus(), requestID, map[string]string{"__type": refusal.Code, "message": refusal.Message})
}

// writeTunnelError answers as the AWS CLI shows what ec2-instance-connect answers.
func writeTunnelError(w http.ResponseWriter, requestID string, refusal *Error) error {
	return sendJSON(w, refusal.HTTPStatus(), requestID, map[string]string{"ErrorCode": refusal.Code, "Message": refusal.Message})
}

func marshalAs(start xml.StartElement, body any) ([]byte, error) {
	var buf bytes.Buffer
	if err := xml.NewEncoder(&buf).EncodeElement(body, start); err != nil {
		return nil, fmt.Errorf("encoding %s: %w", start.Name.Local, err)
	}
	return buf.Bytes(), nil
}

func sendXML(w http.ResponseWriter, status int, requestID string, doc any) error {
	out, err := xml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encoding a response: %w", err)
	}
	return send(w, contentXML, status, requestID, append([]byte(xml.Header), out...))
}

func sendJSON(w http.ResponseWriter, status int, requestID string, body any) error {
	out, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a response: %w", err)
	}
	return send(w, contentJSON, status, requestID, out)
}

// Responses of more than firstRead bytes wait for pause before they are sent.
//
// An answer within microseconds, which AWS never gives over a network, triggers a race in the SDK.
// The SDK closes the request's body as soon as it has the response's headers. If the HTTP transport
// has not yet looked for the body's end, it takes that for a write error and closes the connection
// (smithy-go, safeWriteToReadCloser.WriteTo). The client then loses what it has not read, and
// repeats a call that was carried out. The transport reads 4096 bytes at once, including the
// headers; less than that is never lost.
const (
	firstRead = 3072
	pause     = 10 * time.Millisecond
)

// send writes a response with its headers.
func send(w http.ResponseWriter, contentType string, status int, requestID string, doc []byte) error {
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
