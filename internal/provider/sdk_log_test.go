package provider

import "testing"

// TestShownLevel: the SDK logs no more than Terraform shows.
func TestShownLevel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ all, provider, want string }{
		{"", "", "OFF"},
		{"debug", "", "DEBUG"},
		{"JSON", "", "TRACE"},
		{"1", "", "TRACE"},
		{"TRACE", "info", "INFO"},
		{"", "WARN", "WARN"},
		{"ERROR", "off", "OFF"},
	} {
		got := shownLevel(func(name string) string {
			return map[string]string{"TF_LOG": tt.all, "TF_LOG_PROVIDER": tt.provider}[name]
		})
		if got != tt.want {
			t.Errorf("TF_LOG=%s TF_LOG_PROVIDER=%s: %s, wanted %s", tt.all, tt.provider, got, tt.want)
		}
	}
}
