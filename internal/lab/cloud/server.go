package cloud

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/elbv2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/sts"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// maxBody bounds a request. EC2's own limit is of this order.
const maxBody = 1 << 20

// ServeHTTP answers the AWS APIs at / and the control endpoint under /_lab/.
func (a *Account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, ControlPrefix) {
		a.controls.ServeHTTP(w, r)
		return
	}
	a.API().ServeHTTP(w, r)
}

// API returns a handler of the AWS APIs alone, for callers who must not reach the control endpoint.
func (a *Account) API() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve := a.serveAWS
		if a.forTunnel(r) {
			serve = a.serveTunnel
		} else if a.cfg.Objects != nil && wire.ForS3(r) {
			serve = a.serveS3
		}
		if err := serve(w, r); err != nil {
			a.log.Error("a response could not be written", "error", err)
		}
	})
}

func (a *Account) serveAWS(w http.ResponseWriter, r *http.Request) error {
	id := a.requestID()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return wire.EC2.WriteError(w, id, wire.RefuseWith(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "%v", err))
	}
	req, err := wire.ParseRequest(r, body)
	if err != nil {
		return wire.EC2.WriteError(w, id, wire.AsError(err))
	}
	a.calls.add(req.Action)
	began := a.cfg.Clock.Now()
	out, key, err := a.answer(r, body, req)
	a.record(r, req, id, key, a.cfg.Clock.Now().Sub(began), err)
	if err != nil {
		refusal := wire.AsError(err)
		a.log.Info("refused", "action", req.Action, "code", refusal.Code, "message", refusal.Message)
		return req.Protocol.WriteError(w, id, refusal)
	}
	a.log.Debug("answered", "action", req.Action)
	return req.Protocol.Write(w, req.Action, id, out)
}

// answer runs the action of a request, unless its signature is wrong or a fault refuses it. key is
// the access key that signed it.
func (a *Account) answer(r *http.Request, body []byte, req wire.Request) (out any, key string, err error) {
	if req.Protocol == wire.STS && req.Action == sts.WithWebIdentity { // not signed
		if refusal := a.faults.Refuse(req.Action, req.Protocol.Throttled); refusal != nil {
			return nil, "", refusal
		}
		out, err = a.tokens.Serve(req.Action, req.Form, "")
		return out, "", err
	}
	cred, err := wire.Verify(r, body, a.tokens.Credentials, a.cfg.Clock.Now())
	switch bad := req.Protocol.BadSignature; {
	case errors.Is(err, wire.ErrUnknownKey) || errors.Is(err, wire.ErrUnsigned):
		return nil, "", req.Protocol.BadKey
	case err != nil:
		return nil, "", bad
	case a.tokens.Expired(cred.AccessKeyID):
		return nil, "", req.Protocol.Expired
	case cred.Region != a.cfg.Region && (req.Protocol != wire.IAM || cred.Region != wire.GlobalRegion(a.cfg.Region)):
		return nil, "", wire.RefuseWith(bad.HTTPStatus(), bad.Code, "Credential should be scoped to a valid region: %s, not %s.", a.cfg.Region, cred.Region)
	}
	if err := a.admit(req); err != nil {
		return nil, cred.AccessKeyID, err
	}
	if refusal := a.faults.Refuse(req.Action, req.Protocol.Throttled); refusal != nil {
		return nil, cred.AccessKeyID, refusal
	}
	if err := a.authorize(req, cred.AccessKeyID); err != nil {
		return nil, cred.AccessKeyID, err
	}
	switch req.Protocol {
	case wire.SSM:
		out, err = a.params.Serve(req.Action, req.Body)
	case wire.ServiceQuotas:
		out, err = a.serveQuotas(req.Action, req.Body)
	case wire.ECR:
		out, err = a.serveECR(req.Action, req.Body, cred.AccessKeyID)
	case wire.STS:
		out, err = a.tokens.Serve(req.Action, req.Form, cred.AccessKeyID)
	case wire.IAM:
		out, err = a.iam.Serve(req.Action, req.Form, iam.UserName(a.tokens.Caller(cred.AccessKeyID).User))
	case wire.ELB:
		out, err = a.elb.Serve(req.Action, req.Form)
	case wire.ClassicELB:
		out, err = elbv2.ServeClassic(req.Action, req.Form)
	default:
		out, err = a.compute.Serve(req.Action, req.Form, a.may(cred.AccessKeyID))
	}
	return out, cred.AccessKeyID, err
}

// admit returns the error of a service that throttles a call.
func (a *Account) admit(req wire.Request) error {
	switch req.Protocol {
	case wire.EC2:
		return a.compute.Admit(req.Action, req.Form)
	case wire.ELB, wire.ClassicELB:
		return a.elb.Admit(req.Action)
	case wire.SSM:
		return a.params.Admit(req.Action)
	}
	return nil
}

func (a *Account) requestID() string {
	var b [16]byte
	_, _ = io.ReadFull(a.cfg.Rand, b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// counter counts calls by action.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(action string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[action]++
}

func (c *counter) snapshot() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	maps.Copy(out, c.n)
	return out
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = nil
}
