package wire

import (
	"encoding/xml"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type base struct{ DryRun bool }

type filter struct {
	Name   string
	Values []string `query:"Value"`
}

type request struct {
	base
	VpcId   string
	Max     *int
	Enabled *struct{ Value bool }
	Filters []filter `query:"Filter"`
	Key     []byte
}

func TestDecode(t *testing.T) {
	five := 5
	for _, tc := range []struct {
		name, form string
		want       request
		code       string
	}{
		{name: "empty", form: "Action=X&Version=2016-11-15"},
		{name: "scalars", form: "VpcId=vpc-1&Max=5&DryRun=true&Key=aGk%3D", want: request{base: base{true}, VpcId: "vpc-1", Max: &five, Key: []byte("hi")}},
		{name: "structure", form: "Enabled.Value=true", want: request{Enabled: &struct{ Value bool }{true}}},
		{name: "lists keep their order, also past nine", form: "Filter.10.Name=c&Filter.2.Name=b&Filter.1.Name=a&Filter.1.Value.2=y&Filter.1.Value.1=x",
			want: request{Filters: []filter{{"a", []string{"x", "y"}}, {"b", nil}, {"c", nil}}}},
		{name: "empty list", form: "Filter="},
		{name: "unknown parameter", form: "VpcId=vpc-1&Colour=red", code: "UnknownParameter"},
		{name: "unknown parameter in a list", form: "Filter.1.Colour=red", code: "UnknownParameter"},
		{name: "not a number", form: "Max=many", code: "InvalidParameterValue"},
		{name: "not a boolean", form: "DryRun=perhaps", code: "InvalidParameterValue"},
		{name: "not base64", form: "Key=!", code: "InvalidParameterValue"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			form, err := url.ParseQuery(tc.form)
			if err != nil {
				t.Fatal(err)
			}
			var got request
			err = Decode(form, &got)
			if code := codeOf(err); code != tc.code {
				t.Fatalf("got %q (%v), want %q", code, err, tc.code)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(request{})); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

func TestWrite(t *testing.T) {
	rec := httptest.NewRecorder()
	body := struct {
		IDs []string `xml:"idSet>item"`
	}{[]string{"a<b", "c"}}
	if err := EC2.Write(rec, "DescribeThings", "req-1", body); err != nil {
		t.Fatal(err)
	}
	want := xml.Header + `<DescribeThingsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>req-1</requestId>` +
		`<idSet><item>a&lt;b</item><item>c</item></idSet></DescribeThingsResponse>`
	if got := rec.Body.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	rec = httptest.NewRecorder()
	if err := EC2.WriteError(rec, "req-2", EC2.Throttled); err != nil {
		t.Fatal(err)
	}
	if rec.Code != 503 || !strings.Contains(rec.Body.String(), "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors><RequestID>req-2</RequestID></Response>") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
