package component

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	audit "k8s.io/apiserver/pkg/apis/audit/v1"
	auditvalidation "k8s.io/apiserver/pkg/apis/audit/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// healthPaths are the only paths that the API server serves without authentication. An API server reloads its
// AuthenticationConfiguration by itself, but refuses one with another list of these.
var healthPaths = []string{"/livez", "/readyz", "/healthz"}

// authentication is the AuthenticationConfiguration: the issuers whose tokens are accepted, and anonymous requests for
// health checks only.
func (s APIServerSpec) authentication() (map[string]any, error) {
	base := &apiserver.AuthenticationConfiguration{Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true}}
	base.APIVersion, base.Kind = apiserver.SchemeGroupVersion.String(), "AuthenticationConfiguration"
	for _, p := range healthPaths {
		base.Anonymous.Conditions = append(base.Anonymous.Conditions, apiserver.AnonymousAuthCondition{Path: p})
	}
	config, err := Fields(base)
	if err != nil {
		return nil, err
	}
	if config, err = overlay(config, s.Authentication, &apiserver.AuthenticationConfiguration{}); err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}
	return config, nil
}

// checkAuthentication reports what kube-apiserver would refuse, by its own rules: expressions are compiled. issuers
// are the issuers of service accounts' tokens, which no other issuer may be.
func (s APIServerSpec) checkAuthentication(v version.Version, issuers []string) (errs invalid.Fields) {
	const field, problem = "authentication", "Unusable configuration"
	for _, name := range []string{"anonymous", "apiVersion", "kind"} {
		if _, set := s.Authentication[name]; set {
			errs.Say(field, "Field of the provider", "%s.%s: "+ownedWords, field, name)
		}
	}
	typed := &apiserver.AuthenticationConfiguration{}
	checkConfig(&errs, field, artifact.KubeAPIServer, v, s.Authentication, func() error {
		_, err := overlay(nil, s.Authentication, typed)
		return err
	})
	if len(errs) > 0 || len(s.Authentication) == 0 {
		return errs
	}
	config := &apiserverapi.AuthenticationConfiguration{}
	if err := apiserver.Convert_v1_AuthenticationConfiguration_To_apiserver_AuthenticationConfiguration(typed, config, nil); err != nil {
		errs.Add(field, problem, err)
		return errs
	}
	for _, e := range validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), config, issuers) {
		errs.Say(field, problem, "%s.%s: %s", field, e.Field, e.ErrorBody())
	}
	return errs
}

// encryptionConfig returns a function that renders the EncryptionConfiguration from the stored keys
// (base64) of the given generations. Secrets are encrypted with the first; values encrypted with
// any of them can be read, and so can unencrypted values. The result is secret.
func encryptionConfig(generations []int) func([][]byte) ([]byte, error) {
	return func(keys [][]byte) ([]byte, error) {
		if len(keys) != len(generations) {
			return nil, fmt.Errorf("%d encryption keys for %d generations", len(keys), len(generations))
		}
		secretbox := &apiserver.SecretboxConfiguration{}
		for i, key := range keys {
			key = bytes.TrimSpace(key)
			if raw, err := base64.StdEncoding.DecodeString(string(key)); err != nil || len(raw) != 32 {
				return nil, fmt.Errorf("generation %d of the encryption key is not 32 bytes in base64", generations[i])
			}
			secretbox.Keys = append(secretbox.Keys, apiserver.Key{Name: pki.EncryptionKeyName(generations[i]), Secret: string(key)})
		}
		config := &apiserver.EncryptionConfiguration{
			Resources: []apiserver.ResourceConfiguration{{
				Resources: []string{encryptedResource},
				Providers: []apiserver.ProviderConfiguration{{Secretbox: secretbox}, {Identity: &apiserver.IdentityConfiguration{}}},
			}},
		}
		config.APIVersion, config.Kind = apiserver.SchemeGroupVersion.String(), "EncryptionConfiguration"
		file, err := yamlFile(EncryptionConfigPath, config)
		return file.Content, err
	}
}

func admissionFile(plugins map[string]map[string]any) (desired.File, error) {
	content, err := admissionConfig(plugins)
	if err != nil {
		return desired.File{}, err
	}
	shown := map[string]map[string]any{}
	for name, config := range plugins {
		if config != nil && !shownPlugins[name] {
			config = hideFields("", config, config)
		}
		shown[name] = config
	}
	text, err := admissionConfig(shown)
	return desired.File{Path: AdmissionPath, Mode: 0o644, Content: content, Text: text}, err
}

func admissionConfig(plugins map[string]map[string]any) ([]byte, error) {
	config := &apiserver.AdmissionConfiguration{}
	config.APIVersion, config.Kind = apiserver.SchemeGroupVersion.String(), "AdmissionConfiguration"
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		if plugins[name] == nil {
			continue
		}
		raw, err := json.Marshal(plugins[name])
		if err != nil {
			return nil, fmt.Errorf("configuration of admission plugin %s: %w", name, err)
		}
		config.Plugins = append(config.Plugins, apiserver.AdmissionPluginConfiguration{
			Name: name, Configuration: &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON},
		})
	}
	b, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", AdmissionPath, err)
	}
	return b, nil
}

// readAdmission is the inverse of admissionFile.
func readAdmission(f Found) (map[string]map[string]any, error) {
	var config struct {
		Plugins []struct {
			Name          string         `json:"name"`
			Configuration map[string]any `json:"configuration"`
		} `json:"plugins"`
	}
	if err := yaml.Unmarshal(f.Files[AdmissionPath], &config); err != nil {
		return nil, fmt.Errorf("%s: %w", AdmissionPath, err)
	}
	var out map[string]map[string]any
	for _, p := range config.Plugins {
		if out == nil {
			out = map[string]map[string]any{}
		}
		out[p.Name] = p.Configuration
	}
	return out, nil
}

// auditFile renders the user's audit policy, or the built-in one.
func auditFile(custom []byte) (desired.File, error) {
	if len(bytes.TrimSpace(custom)) == 0 {
		return yamlFile(AuditPolicyPath, defaultAuditPolicy())
	}
	policy, err := parseAuditPolicy(custom)
	if err != nil {
		return desired.File{}, fmt.Errorf("audit policy: %w", err)
	}
	return yamlFile(AuditPolicyPath, policy)
}

// parseAuditPolicy returns an error for what kube-apiserver would reject, by its own rules
// (k8s.io/apiserver/pkg/apis/audit/validation).
func parseAuditPolicy(custom []byte) (map[string]any, error) {
	var m map[string]any
	if err := yaml.UnmarshalStrict(custom, &m); err != nil {
		return nil, err
	}
	policy := &audit.Policy{}
	m, err := overlay(nil, m, policy)
	switch {
	case err != nil:
		return nil, err
	case policy.Kind != "Policy" || policy.APIVersion != audit.SchemeGroupVersion.String():
		return nil, fmt.Errorf("wanted kind Policy of %s, found %q of %q", audit.SchemeGroupVersion, policy.Kind, policy.APIVersion)
	case len(policy.Rules) == 0:
		return nil, errors.New("no rules")
	}
	var internal auditapi.Policy
	if err := audit.Convert_v1_Policy_To_audit_Policy(policy, &internal, nil); err != nil {
		return nil, err
	}
	return m, auditvalidation.ValidatePolicy(&internal).ToAggregate()
}

// defaultAuditPolicy logs who did what to which object, and no body of a request: bodies can hold
// secrets. It logs nothing of the cluster's own heartbeats.
func defaultAuditPolicy() *audit.Policy {
	leases := []audit.GroupResources{{Group: "coordination.k8s.io", Resources: []string{"leases"}}}
	p := &audit.Policy{
		OmitStages:        []audit.Stage{audit.StageRequestReceived},
		OmitManagedFields: true,
		Rules: []audit.PolicyRule{
			{Level: audit.LevelNone, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"}},
			{Level: audit.LevelNone, UserGroups: []string{"system:nodes"}, Verbs: []string{"create", "patch", "update"}, Resources: []audit.GroupResources{
				{Group: "", Resources: []string{"events", "nodes/status", "pods/status"}},
				{Group: "events.k8s.io", Resources: []string{"events"}},
			}},
			{Level: audit.LevelNone, UserGroups: []string{"system:nodes"}, Verbs: []string{"get", "update"}, Resources: leases},
			{Level: audit.LevelNone, Users: []string{managerUser, schedulerUser, "system:apiserver"}, Verbs: []string{"get", "update"}, Resources: leases},
			{Level: audit.LevelMetadata},
		},
	}
	p.APIVersion, p.Kind = audit.SchemeGroupVersion.String(), "Policy"
	return p
}
