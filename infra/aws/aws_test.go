package aws

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

func TestClientToken(t *testing.T) {
	a := ClientToken("demo", "machine", "worker-0", "")
	if a != ClientToken("demo", "machine", "worker-0", "") || len(a) != 64 {
		t.Errorf("token %q is not deterministic, or longer than EC2 takes", a)
	}
	for _, b := range []string{
		ClientToken("demo", "machine", "worker-0", "1"), ClientToken("demo", "machine", "worker-1", ""), ClientToken("dem", "omachine", "worker-0", ""),
	} {
		if a == b {
			t.Error("different things share a token")
		}
	}
}

func TestRetry(t *testing.T) {
	code := func(c string) error { return &smithy.GenericAPIError{Code: c, Message: c} }
	p := &codeRetryer{Retryer: newRetryer(Config{MaxRetries: 2}), codes: []string{"InvalidVpcID.NotFound"}, limit: 3}
	for i, want := range []bool{true, true, false} {
		if got := p.IsErrorRetryable(code("InvalidVpcID.NotFound")); got != want {
			t.Errorf("attempt %d: retryable %v, wanted %v", i+1, got, want)
		}
	}
	if !p.IsErrorRetryable(code("RequestLimitExceeded")) || p.IsErrorRetryable(code("InsufficientInstanceCapacity")) || p.IsErrorRetryable(errors.New("x")) {
		t.Error("the SDK's own judgement is gone")
	}
	p = &codeRetryer{Retryer: p.Retryer, codes: p.codes, limit: ConsistencyAttempts}
	var first, total time.Duration
	for i := 1; p.IsErrorRetryable(code("InvalidVpcID.NotFound")); i++ {
		d, err := p.RetryDelay(i, code("InvalidVpcID.NotFound"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			first = d
		}
		total += d
	}
	if first != firstPoll || total < 20*time.Second || total > 40*time.Second {
		t.Errorf("waits %s at first and %s in all", first, total)
	}
}

func TestTagsDiffer(t *testing.T) {
	got := DiffTags(map[string]string{"a": "1", "b": "2", "c": "3"}, map[string]string{"a": "1", "b": "x", "aws:other": "y"})
	if want := `tag b: found "x", wanted "2"; tag c: missing, wanted "3"`; finding.Words(got) != want {
		t.Errorf("got %v, wanted %v", got, want)
	}
	for key, reserved := range map[string]bool{"Name": true, TagCluster: true, "kubernetes.io/cluster/x": true, "aws:x": true, "team": false} {
		if ReservedTag(key) != reserved {
			t.Errorf("%s: reserved %v", key, !reserved)
		}
	}
}

func TestAdvice(t *testing.T) {
	if Advice(errors.New("x")) != "" || Advice(&smithy.GenericAPIError{Code: "UnauthorizedOperation"}) == "" {
		t.Error("advice does not follow the code")
	}
	c, err := New(t.Context(), Config{Region: "eu-central-1", AccessKey: "AKIAHALF"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Caller(t.Context()); !strings.HasPrefix(Advice(err), "No AWS credentials were found") {
		t.Errorf("of %v: %q", err, Advice(err))
	}
	if err := errors.New("get credentials: of somebody else"); Advice(err) != "" {
		t.Errorf("words are taken for an error of the SDK: %q", Advice(err))
	}
}

func TestInside(t *testing.T) {
	for _, tt := range []struct {
		tags map[string]string
		want bool
	}{
		{map[string]string{"kubernetes.io/cluster/demo": "owned"}, true},
		{map[string]string{"kubernetes.io/cluster/demo": "owned", "ebs.csi.aws.com/cluster": "true", "Name": "demo-dynamic-pvc-1"}, true},
		{map[string]string{"elbv2.k8s.aws/cluster": "demo", "service.k8s.aws/stack": "default/web"}, true},
		{map[string]string{"kubernetes.io/cluster/demo": "shared"}, false},
		{map[string]string{"kubernetes.io/cluster/demo": "shared", "elbv2.k8s.aws/cluster": "demo"}, false},
		{map[string]string{"kubernetes.io/cluster/demo": "owned", "kubernetes.io/cluster/other": "owned"}, false},
		{map[string]string{"kubernetes.io/cluster/demo2": "owned", "elbv2.k8s.aws/cluster": "demo"}, false},
		{map[string]string{"kubernetes.io/cluster/demo": "owned", TagCluster: "demo", TagKind: KindVolume}, false},
		{map[string]string{"kubernetes.io/cluster/demo": "owned", TagClaim: "1"}, false},
		{map[string]string{"elbv2.k8s.aws/cluster": "other"}, false},
		{map[string]string{"ebs.csi.aws.com/cluster": "true"}, false}, // of which cluster it does not say
		{nil, false},
	} {
		if got := Inside("demo").Made(tt.tags); got != tt.want {
			t.Errorf("%v: %t, wanted %t", tt.tags, got, tt.want)
		}
	}
}
