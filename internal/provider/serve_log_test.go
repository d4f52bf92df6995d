package provider

import "testing"

func TestSDKLogsWhatTerraformShows(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"nothing is shown", nil, "OFF"},
		{"everything", map[string]string{"TF_LOG": "TRACE"}, "TRACE"},
		{"of providers less than of Terraform", map[string]string{"TF_LOG": "TRACE", "TF_LOG_PROVIDER": "INFO"}, "INFO"},
		{"somebody has said it", map[string]string{"TF_LOG_SDK": "DEBUG"}, "DEBUG"},
	} {
		env := map[string]string{}
		for k, v := range test.env {
			env[k] = v
		}
		quietSDK(func(name string) string { return env[name] }, func(name, value string) error { env[name] = value; return nil })
		if got := env["TF_LOG_SDK"]; got != test.want {
			t.Errorf("%s: %s, wanted %s", test.name, got, test.want)
		}
	}
}
