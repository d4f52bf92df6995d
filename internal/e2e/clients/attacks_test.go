package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest/isolation"
)

// notByCLI are attacks that the AWS CLI of Debian 12, version 2.9, cannot make against the local EC2, and why.
var notByCLI = map[string]string{
	"22 endpoint in Bob's subnet": "it is older than these endpoints",
	"23 OpenTunnel through Bob's": "it is older than open-tunnel, and the SDK has no such call",
	"32 TagUser herself":          "the local IAM does not serve it, so the table asks the policies",
	"CreateVpc in another region": "the local account has one region, so the table asks the policies",
}

// TestAttacks: the AWS CLI gets what the SDK gets in TestIsolation for the same attacks, with the same policies.
func TestAttacks(t *testing.T) {
	harness.Long(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	tree, err := ensureRoot(ctx, suite.Cache)
	if err != nil {
		t.Fatal(err)
	}
	c, p := isolation.NewClass(t), isolation.ReadPolicies(t)
	given := []string{p.Without("boundary", -1), p.Without("member", -1), p.Without("load-balancers", -1)}
	attacks := c.Attacks()
	// Ada has one access key. So what she tries without tags comes after all else.
	for _, untagged := range []bool{false, true} {
		tags := c.Tags()
		if untagged {
			tags = nil
		}
		ada := c.As(t, tags, given[0], given[1:]...)
		t.Run(fmt.Sprintf("untagged %t", untagged), func(t *testing.T) {
			for _, r := range attacks {
				if r.Untagged != untagged {
					continue
				}
				t.Run(r.Name, func(t *testing.T) {
					t.Parallel()
					cli := &commandLine{T: t, tree: tree, lab: ada}
					got := r.Do(t, ada.Through(cli.instead), false)
					switch why := notByCLI[r.Name]; {
					case why != "" && (cli.calls.Load() == 0 || errors.Is(got, errUnknown)):
						t.Skip("not by the AWS CLI: " + why)
					case why != "":
						t.Errorf("the AWS CLI makes it after all, although %s: %v", why, got)
					case cli.calls.Load() != 1:
						t.Errorf("the AWS CLI was started %d times", cli.calls.Load())
					default:
						cloudtest.Refused(t, got, r.Want)
					}
				})
			}
		})
	}
	for name := range notByCLI {
		if !slices.ContainsFunc(attacks, func(r isolation.Request) bool { return r.Name == name }) {
			t.Errorf("there is no attack %s", name)
		}
	}
}

// commandLine makes calls of the SDK's clients with the AWS CLI.
type commandLine struct {
	*testing.T
	tree  root
	lab   *cloudtest.Lab // with the caller's credentials
	calls atomic.Int64
}

// instead lets a client of the SDK call the AWS CLI, instead of sending anything.
func (c *commandLine) instead(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("CommandLine", func(ctx context.Context, in middleware.InitializeInput, _ middleware.InitializeHandler) (out middleware.InitializeOutput, m middleware.Metadata, err error) {
		return out, m, c.call(ctx, awsmiddleware.GetServiceID(ctx), awsmiddleware.GetOperationName(ctx), in.Parameters)
	}), middleware.After)
}

// errUnknown says that the AWS CLI does not know a call.
var errUnknown = errors.New("the AWS CLI has no such command")

// services are the commands of the AWS CLI, by the SDK's names of services.
var services = map[string]string{"EC2": "ec2", "SSM": "ssm", "STS": "sts", "Elastic Load Balancing v2": "elbv2"}

var (
	word     = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	errorOf  = regexp.MustCompile(`(?m)^An error occurred \(([\w.]+)\) when calling the (\w+) operation`)
	patience = 2 * time.Minute
)

// call makes one call. Its answer is an error with the code that the AWS CLI names, which is empty after a success, since the SDK's
// client wants an output otherwise.
func (c *commandLine) call(ctx context.Context, service, operation string, input any) error {
	c.calls.Add(1)
	if services[service] == "" {
		return fmt.Errorf("the AWS CLI's name of %q is unknown", service)
	}
	given, err := json.Marshal(fields(reflect.ValueOf(input)))
	if err != nil {
		return err
	}
	credentials, err := c.lab.AWS.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	if late := time.Since(c.lab.Clock.Now()); late > 0 { // the AWS CLI signs with the host's time
		c.lab.Clock.Advance(late)
	}
	env := []string{"AWS_ACCESS_KEY_ID=" + credentials.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + credentials.SecretAccessKey, "AWS_DEFAULT_REGION=" + c.lab.AWS.Region, "AWS_EC2_METADATA_DISABLED=true"}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	printed, err := c.tree.command(ctx, c.TempDir(), env, "aws", "--endpoint-url", c.lab.URL, "--output", "json", "--no-cli-pager",
		services[service], strings.ToLower(word.ReplaceAllString(operation, "$1-$2")), "--cli-input-json", string(given)).CombinedOutput()
	if err == nil {
		return &smithy.GenericAPIError{}
	}
	if strings.Contains(string(printed), "aws: error: argument operation: Invalid choice") {
		return errUnknown
	}
	var exit *exec.ExitError
	refusal := errorOf.FindSubmatch(printed)
	if !errors.As(err, &exit) || refusal == nil || string(refusal[2]) != operation {
		return fmt.Errorf("aws %s %s %s: %w\n%s", services[service], operation, given, err, printed)
	}
	return &smithy.GenericAPIError{Code: string(refusal[1]), Message: string(printed)}
}

// fields returns an input of the SDK as the AWS CLI reads it: the same names, without what is not given.
func fields(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		return fields(v.Elem())
	case reflect.Struct:
		given := map[string]any{}
		for n := range v.NumField() {
			if f := v.Type().Field(n); f.IsExported() && !v.Field(n).IsZero() {
				given[f.Name] = fields(v.Field(n))
			}
		}
		return given
	case reflect.Slice:
		given := []any{}
		for n := range v.Len() {
			given = append(given, fields(v.Index(n)))
		}
		return given
	}
	return v.Interface() // a text, a number or a truth value: no attack has others
}
