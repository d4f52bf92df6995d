package pki

import (
	"strings"
	"testing"
	"time"
)

func TestParseCAValidity(t *testing.T) {
	for in, want := range map[string]string{
		"24h": "", "87600h": "", "2500000h": "", "3000h30m": "",
		"1m": "1m is too short: at least 24h", "23h59m": "too short", "-1h": "too short", "0s": "too short",
		"2500001h":  "too long: at most 2500000h (285 years)",
		"87600000h": "87600000h is too long: at most 2500000h (285 years)",
		"10 years":  `"10 years" is not a duration such as 87600h`, "": "not a duration", "10": "not a duration",
	} {
		d, err := ParseCAValidity(in)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %q", in, err, want)
		}
		if err == nil && d < 24*time.Hour {
			t.Errorf("%s: %s", in, d)
		}
	}
}
