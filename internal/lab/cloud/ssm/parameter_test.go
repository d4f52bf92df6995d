package ssm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func TestParameters(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	put := func(name, value string, change ...func(*awsssm.PutParameterInput)) error {
		in := &awsssm.PutParameterInput{Name: &name, Value: &value, Type: ssmtypes.ParameterTypeSecureString}
		for _, f := range change {
			f(in)
		}
		_, err := l.SSM.PutParameter(ctx, in)
		return err
	}
	get := func(name string, decrypt bool) (string, error) {
		out, err := l.SSM.GetParameter(ctx, &awsssm.GetParameterInput{Name: &name, WithDecryption: &decrypt})
		if err != nil {
			return "", err
		}
		return *out.Parameter.Value, nil
	}
	overwrite := func(in *awsssm.PutParameterInput) { in.Overwrite = aws.Bool(true) }
	const key = "/k8s/demo/pki/ca"
	cloudtest.Refused(t, put(key, "very secret", func(in *awsssm.PutParameterInput) {
		in.KeyId, in.Tags = aws.String("alias/mine"), []ssmtypes.Tag{{Key: aws.String("cluster"), Value: aws.String("demo")}}
	}), "")
	for _, tc := range []struct {
		name, code string
		err        error
	}{
		{"exists", "ParameterAlreadyExists", put(key, "other")},
		{"overwritten as another type", "HierarchyTypeMismatchException", put(key, "x", overwrite, func(in *awsssm.PutParameterInput) { in.Type = ssmtypes.ParameterTypeString })},
		{"tags with overwrite", "ValidationException", put(key, "x", overwrite, func(in *awsssm.PutParameterInput) {
			in.Tags = []ssmtypes.Tag{{Key: aws.String("a"), Value: aws.String("b")}}
		})},
		{"no type", "ValidationException", put("/new", "x", func(in *awsssm.PutParameterInput) { in.Type = "" })},
		{"name not qualified", "ValidationException", put("k8s/demo", "x")},
		{"name reserved", "AccessDeniedException", put("/aws/mine", "x")},
		{"too long for the standard tier", "ValidationException", put("/new", strings.Repeat("x", 4097))},
		{"key for a plain string", "ValidationException", put("/new", "x", func(in *awsssm.PutParameterInput) {
			in.Type, in.KeyId = ssmtypes.ParameterTypeString, aws.String("alias/mine")
		})},
	} {
		t.Run(tc.name, func(t *testing.T) { cloudtest.Refused(t, tc.err, tc.code) })
	}
	if v := cloudtest.Must[string](t)(get(key, true)); v != "very secret" {
		t.Errorf("decrypted it is %q", v)
	}
	if v := cloudtest.Must[string](t)(get(key, false)); strings.Contains(v, "secret") {
		t.Errorf("encrypted it is %q", v)
	}
	cloudtest.Refused(t, put(key, "changed", overwrite), "")
	if v := cloudtest.Must[string](t)(get(key+":2", true)); v != "changed" {
		t.Errorf("version 2 is %q", v)
	}
	if v := cloudtest.Must[string](t)(get(key+":1", true)); v != "very secret" {
		t.Errorf("version 1 is %q", v)
	}
	_, err := get(key+":3", true)
	cloudtest.Refused(t, err, "ParameterVersionNotFound")
	_, err = get("/k8s/none", true)
	cloudtest.Refused(t, err, "ParameterNotFound")
	for release, want := range map[string]string{"13": cloudtest.Image, "12": cloudtest.OlderImage} {
		if v := cloudtest.Must[string](t)(get("/aws/service/debian/release/"+release+"/latest/amd64", false)); v != want {
			t.Errorf("the image of Debian %s is %q", release, v)
		}
	}
	_, err = get("/aws/service/debian/release/11/latest/amd64", false)
	cloudtest.Refused(t, err, "ParameterNotFound")
	tags := cloudtest.Must[*awsssm.ListTagsForResourceOutput](t)(l.SSM.ListTagsForResource(ctx, &awsssm.ListTagsForResourceInput{ResourceType: ssmtypes.ResourceTypeForTaggingParameter, ResourceId: aws.String(key)})).TagList
	if len(tags) != 1 || *tags[0].Value != "demo" {
		t.Errorf("tags: %+v", tags)
	}

	info, err := os.Stat(filepath.Join(l.Dir, "ssm.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the parameters' file: %v, %v", info, err)
	}

	for n := range 12 {
		cloudtest.Refused(t, put(fmt.Sprintf("/k8s/other/%02d", n), "x"), "")
	}
	cloudtest.Refused(t, put("/k8s/other/deep/er", "x"), "")
	var names []string
	pages := awsssm.NewGetParametersByPathPaginator(l.SSM, &awsssm.GetParametersByPathInput{Path: aws.String("/k8s/other"), WithDecryption: aws.Bool(true), MaxResults: aws.Int32(5)})
	count := 0
	for ; pages.HasMorePages(); count++ {
		for _, p := range cloudtest.Must[*awsssm.GetParametersByPathOutput](t)(pages.NextPage(ctx)).Parameters {
			names = append(names, *p.Name)
		}
	}
	if len(names) != 12 || count != 3 {
		t.Errorf("by path: %d names in %d pages", len(names), count)
	}
	recursive := cloudtest.Must[*awsssm.GetParametersByPathOutput](t)(l.SSM.GetParametersByPath(ctx, &awsssm.GetParametersByPathInput{Path: aws.String("/k8s/other/deep"), Recursive: aws.Bool(true)}))
	if len(recursive.Parameters) != 1 {
		t.Errorf("recursively: %+v", recursive.Parameters)
	}
	described := cloudtest.Must[*awsssm.DescribeParametersOutput](t)(l.SSM.DescribeParameters(ctx, &awsssm.DescribeParametersInput{ParameterFilters: []ssmtypes.ParameterStringFilter{
		{Key: aws.String("Name"), Option: aws.String("BeginsWith"), Values: []string{"/k8s/demo/"}}, {Key: aws.String("tag:cluster"), Values: []string{"demo"}},
	}})).Parameters
	if len(described) != 1 || *described[0].KeyId != "alias/mine" || described[0].Version != 2 {
		t.Errorf("described: %+v", described)
	}
	many := cloudtest.Must[*awsssm.GetParametersOutput](t)(l.SSM.GetParameters(ctx, &awsssm.GetParametersInput{Names: []string{key, "/none"}}))
	if len(many.Parameters) != 1 || len(many.InvalidParameters) != 1 {
		t.Errorf("several: %+v", many)
	}
	deleted := cloudtest.Must[*awsssm.DeleteParametersOutput](t)(l.SSM.DeleteParameters(ctx, &awsssm.DeleteParametersInput{Names: []string{key, "/none"}}))
	if len(deleted.DeletedParameters) != 1 || len(deleted.InvalidParameters) != 1 {
		t.Errorf("deleted: %+v", deleted)
	}
	_, err = l.SSM.DeleteParameter(ctx, &awsssm.DeleteParameterInput{Name: aws.String(key)})
	cloudtest.Refused(t, err, "ParameterNotFound")
}

// TestParameterVersions keeps the last hundred versions.
func TestParameterVersions(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	for n := range 102 {
		_, err := l.SSM.PutParameter(ctx, &awsssm.PutParameterInput{
			Name: aws.String("/k8s/demo"), Value: aws.String(fmt.Sprint("value ", n+1)), Type: ssmtypes.ParameterTypeSecureString, Overwrite: aws.Bool(n > 0),
		})
		cloudtest.Refused(t, err, "")
	}
	for version, want := range map[string]string{"2": "ParameterVersionNotFound", "3": "", "102": ""} {
		out, err := l.SSM.GetParameter(ctx, &awsssm.GetParameterInput{Name: aws.String("/k8s/demo:" + version), WithDecryption: aws.Bool(true)})
		if cloudtest.Refused(t, err, want); want == "" && *out.Parameter.Value != "value "+version {
			t.Errorf("version %s is %q", version, *out.Parameter.Value)
		}
	}
}

// TestDeletedName: a name cannot be used again within 30 seconds, also not after a restart.
func TestDeletedName(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	put := func() error {
		_, err := l.SSM.PutParameter(ctx, &awsssm.PutParameterInput{Name: aws.String("/k8s/demo"), Value: aws.String("x"), Type: ssmtypes.ParameterTypeString})
		return err
	}
	for _, remove := range []func() error{
		func() error {
			_, err := l.SSM.DeleteParameter(ctx, &awsssm.DeleteParameterInput{Name: aws.String("/k8s/demo")})
			return err
		},
		func() error {
			_, err := l.SSM.DeleteParameters(ctx, &awsssm.DeleteParametersInput{Names: []string{"/k8s/demo"}})
			return err
		},
	} {
		cloudtest.Refused(t, put(), "")
		cloudtest.Refused(t, remove(), "")
		cloudtest.Refused(t, put(), "TooManyUpdates")
		l.Clock.Advance(29 * time.Second)
		l.Open(t)
		cloudtest.Refused(t, put(), "TooManyUpdates")
		l.Clock.Advance(time.Second)
	}
	cloudtest.Refused(t, put(), "")
}
