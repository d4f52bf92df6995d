package provider

import (
	"cmp"
	"os"
	"strings"
)

// sdkLogVariable is the level at which the SDK below this provider logs. Without it, the SDK logs
// every step at TRACE, and leaves it to Terraform to read all lines and to show none.
const sdkLogVariable = "TF_LOG_SDK"

// limitSDKLog makes the SDK log what Terraform shows, and no more.
func limitSDKLog() error {
	if os.Getenv(sdkLogVariable) != "" {
		return nil
	}
	return os.Setenv(sdkLogVariable, shownLevel(os.Getenv))
}

// shownLevel returns the level from which on Terraform shows what a provider logs.
// https://developer.hashicorp.com/terraform/internals/debugging
func shownLevel(getenv func(string) string) string {
	switch level := strings.ToUpper(cmp.Or(getenv("TF_LOG_PROVIDER"), getenv("TF_LOG"))); level {
	case "":
		return "OFF"
	case "DEBUG", "INFO", "WARN", "ERROR", "OFF":
		return level
	default: // TRACE, JSON, and what Terraform takes for TRACE
		return "TRACE"
	}
}
