package cloud

import (
	"net/url"
	"testing"
)

func TestInS3(t *testing.T) {
	a := &Account{cfg: Config{Region: "cn-north-1", Objects: noObjects{}}}
	const s3 = "s3.cn-north-1.amazonaws.com.cn"
	for from, want := range map[string]string{
		"https://" + s3 + "/b/p/x":               "/b/p/x",
		"https://b." + s3 + "/p/x":               "/b/p/x",
		"https://b." + s3 + ":443/p/x":           "/b/p/x",
		"https://a.b." + s3 + "/p":               "",
		"https://." + s3 + "/p":                  "",
		"https://b" + s3 + "/p":                  "",
		"http://b." + s3 + "/p":                  "",
		"https://b." + s3 + ":8443/p":            "",
		"https://b." + s3 + ".example.com":       "",
		"https://b.s3.us-east-1.amazonaws.com/p": "",
	} {
		u, err := url.Parse(from)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := a.inS3(u); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v, want %q", from, got, ok, want)
		}
	}
}

type noObjects struct{ Objects }
