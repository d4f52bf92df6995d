package machine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// cloudInit is the part of cloud-init's configuration that is used.
// https://docs.cloud-init.io/en/latest/reference/modules.html
type cloudInit struct {
	Hostname         string            `json:"hostname,omitempty"`
	PreserveHostname bool              `json:"preserve_hostname"`
	DisableRoot      bool              `json:"disable_root"`
	PasswordAuth     bool              `json:"ssh_pwauth"`
	DeleteKeys       bool              `json:"ssh_deletekeys"`
	HostKeys         map[string]string `json:"ssh_keys"`
	Users            []cloudInitUser   `json:"users"`
	BootCommands     [][]string        `json:"bootcmd,omitempty"`
}

type cloudInitUser struct {
	Name           string   `json:"name"`
	Gecos          string   `json:"gecos,omitempty"`
	PrimaryGroup   string   `json:"primary_group"` // made unless the image has it: useradd would fail because of one of its name
	Groups         []string `json:"groups,omitempty"`
	Shell          string   `json:"shell"`
	Sudo           string   `json:"sudo"`
	LockPassword   bool     `json:"lock_passwd"`
	AuthorizedKeys []string `json:"ssh_authorized_keys"`
}

// MaxUserData is how many bytes of user data EC2 accepts, before base64.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html
const MaxUserData = 16 << 10

// fieldUserData is the argument with user data of the caller's own.
const fieldUserData = "user_data"

// userDataTypes are the beginnings by which cloud-init recognises what user data are, and its content type
// for each. One that begins with another one comes first.
// https://docs.cloud-init.io/en/latest/explanation/format.html
var userDataTypes = []struct{ begins, contentType string }{
	{"#!", "text/x-shellscript"},
	{"#cloud-boothook", "text/cloud-boothook"},
	{"#cloud-config-archive", "text/cloud-config-archive"},
	{"#cloud-config-jsonp", "text/cloud-config-jsonp"},
	{"#cloud-config", configType},
	{"#include-once", "text/x-include-once-url"},
	{"#include", "text/x-include-url"},
	{"#part-handler", "text/part-handler"},
	{"## template: jinja", "text/jinja2"},
}

const configType = "text/cloud-config"

// userDataType returns cloud-init's content type of a text, empty if it has none.
func userDataType(text string) string {
	for _, t := range userDataTypes {
		if strings.HasPrefix(text, t.begins) {
			return t.contentType
		}
	}
	return ""
}

// mimeHeader matches the beginning of a MIME message.
var mimeHeader = regexp.MustCompile(`^(?i:mime-version|content-type)\s*:`)

// CheckUserData reports a text that cannot be further user data of a machine: cloud-init would not know
// what it is, or EC2 refuses it, or it says otherwise what the machine needs as it is.
func CheckUserData(text string) (errs invalid.Fields) {
	switch typ := userDataType(text); {
	case text == "":
	case len(text) > MaxUserData:
		errs.Say(fieldUserData, "Too much user data", "It has %d bytes, and EC2 takes %d together with those of the provider: let the machine fetch the rest, for example with #include.", len(text), MaxUserData)
	case mimeHeader.MatchString(text):
		errs.Say(fieldUserData, "A MIME message", "The provider makes a MIME message of this text and its own: give one part, or several as a #cloud-config-archive.")
	case typ == "":
		var known []string
		for _, t := range userDataTypes {
			known = append(known, t.begins)
		}
		errs.Say(fieldUserData, "Unknown kind of user data", "The first line says to cloud-init what user data are, and has to begin with one of %s. The text is given as it is, not compressed and not in base64.",
			strings.Join(known, ", "))
	case typ == configType:
		errs = checkCloudConfig(text)
	}
	return errs
}

// checkCloudConfig reports a configuration that cloud-init cannot read, and what in one would have no
// effect: cloud-init takes what the provider sets from the provider's own configuration.
func checkCloudConfig(text string) (errs invalid.Fields) {
	var config map[string]any
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		errs.Say(fieldUserData, "Unreadable #cloud-config", "It is not a YAML object: %w", err)
		return errs
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if slices.Contains(ownKeys(), key) {
			errs.Say(fieldUserData, "Set by the provider", "%s in #cloud-config is set by the provider, for the machine's name, host key and login user: remove it. A script can add what else is needed, such as further users.", key)
		}
	}
	return errs
}

// ownKeys are the top-level keys that the provider's configuration always has.
func ownKeys() (keys []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[cloudInit]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Name != "BootCommands" {
			keys = append(keys, name)
		}
	}
	return keys
}

// userData returns what the machine is launched with. It is not compressed, so that parseUserData and
// people can read it.
//
// Further user data come before the provider's configuration: of two configurations cloud-init takes each
// key from the later one. With them, the boot command is a boothook: bootcmd would replace theirs.
func userData(spec Spec, keys launchKeys) ([]byte, error) {
	if len(spec.AuthorizedKeys) == 0 {
		return nil, errors.New("no SSH public key to authorise on the machine")
	}
	config := cloudInit{
		Hostname:    spec.Name,
		DisableRoot: true,
		DeleteKeys:  true,
		HostKeys:    keys.cloudInit(),
		Users: []cloudInitUser{{
			Name: spec.User, Gecos: "Administrator", PrimaryGroup: spec.User, Groups: []string{"adm", "systemd-journal"}, Shell: "/bin/bash",
			Sudo: "ALL=(ALL) NOPASSWD:ALL", LockPassword: true, AuthorizedKeys: spec.AuthorizedKeys,
		}},
	}
	if spec.BootCommand != "" && spec.UserData == "" {
		config.BootCommands = [][]string{append(slices.Clone(oncePerInstance), spec.BootCommand)}
	}
	body, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("write user data: %w", err)
	}
	own := "#cloud-config\n" + string(body)
	if spec.UserData == "" {
		return []byte(own), nil
	}
	parts := []part{{furtherPart, userDataType(spec.UserData), spec.UserData}, {ownPart, configType, own}}
	if spec.BootCommand != "" {
		parts = append(parts, part{bootPart, "text/cloud-boothook", "#cloud-boothook\n#!/bin/sh\nexec " +
			strings.Join(oncePerInstance, " ") + " '" + strings.ReplaceAll(spec.BootCommand, "'", `'\''`) + "'\n"})
	}
	return message(parts), nil
}

// oncePerInstance begins a command that runs at the first boot only.
var oncePerInstance = []string{"cloud-init-per", "instance", "k8s-from-scratch", "sh", "-c"}

// UserDataBytes returns how many bytes of user data a machine of the specification is launched with. EC2
// takes [MaxUserData].
func (s Spec) UserDataBytes(rand io.Reader) (int, error) {
	keys, err := newLaunchKeys(rand) // all have the same length
	if err != nil {
		return 0, err
	}
	data, err := userData(s, keys)
	return len(data), err
}

// launchData is what a machine was launched with.
type launchData struct {
	hostKeys []string // its first ones, public; empty if there are none
	userData string   // that of the caller's own
}

var errForeignData = errors.New("they were not written by this provider")

// launchedWith reads an instance's user data.
func launchedWith(ctx context.Context, c *aws.Client, id string) (launchData, error) {
	out, err := c.EC2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
		InstanceId: &id, Attribute: types.InstanceAttributeNameUserData,
	}, c.RetryUntilKnown())
	if err != nil {
		return launchData{}, fmt.Errorf("read its user data: %w", err)
	}
	if out.UserData == nil {
		return launchData{}, nil
	}
	raw, err := base64.StdEncoding.DecodeString(sdk.ToString(out.UserData.Value))
	var found launchData
	if err == nil {
		found, err = parseUserData(raw)
	}
	if err != nil {
		return launchData{}, fmt.Errorf("read its user data: %w: %w", errForeignData, err)
	}
	return found, nil
}

// parseUserData reads what userData has written.
func parseUserData(raw []byte) (launchData, error) {
	var found launchData
	own := string(raw)
	if mimeHeader.Match(raw) {
		parts, err := parseMessage(raw)
		if err != nil {
			return found, err
		}
		own = ""
		for _, p := range parts {
			switch p.name {
			case ownPart:
				own = p.text
			case furtherPart:
				found.userData = p.text
			}
		}
	}
	var parsed cloudInit
	if err := yaml.Unmarshal([]byte(own), &parsed); err != nil {
		return launchData{}, fmt.Errorf("its configuration: %w", err)
	}
	for _, typ := range hostKeyTypes {
		if key := strings.TrimSpace(parsed.HostKeys[typ+"_public"]); key != "" {
			found.hostKeys = append(found.hostKeys, key)
		}
	}
	return found, nil
}

// sameUserData refuses to continue with an instance that was launched with other user data than wanted,
// since they are read only at the first boot.
func sameUserData(ctx context.Context, c *aws.Client, spec Spec, id string) error {
	found, err := launchedWith(ctx, c, id)
	if err != nil && !errors.Is(err, errForeignData) {
		return err
	}
	if found.userData == spec.UserData {
		return nil
	}
	return &invalid.Field{Field: fieldUserData, Problem: "Launched with other user data", Err: fmt.Errorf("machine %s exists already as %s, made by another configuration or an earlier run of this one, "+
		"and was launched with other user_data: terminate it, or import it with what it was launched with", spec.Name, id)}
}
