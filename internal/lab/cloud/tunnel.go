package cloud

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

const (
	// openTunnel is the action of EC2 Instance Connect Endpoints, and the path at their DNS names.
	openTunnel = "OpenTunnel"
	tunnelPath = "/openTunnel"
	// maxTunnels is how many tunnels an endpoint has at once, and maxTunnelDuration how long one lasts.
	// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/eice-quotas.html
	maxTunnels        = 20
	maxTunnelDuration = time.Hour
	// tunnelDial is how long a machine may take to accept.
	tunnelDial = 10 * time.Second
	// tunnelFrame is the longest message that an endpoint sends.
	tunnelFrame = 32 << 10
)

// forTunnel reports whether a request is for an endpoint: it names the endpoint as its host. All names of
// the account lead here.
func (a *Account) forTunnel(r *http.Request) bool {
	return r.URL.Path == tunnelPath && strings.HasSuffix(hostOf(r), ec2.ConnectDomain(a.cfg.Region))
}

// hostOf returns the name that a request asks, without a port.
func hostOf(r *http.Request) string {
	if name, _, err := net.SplitHostPort(r.Host); err == nil {
		return name
	}
	return r.Host
}

// tunnelRequest is what a tunnel was asked for.
type tunnelRequest struct {
	endpoint string
	from     string // interface
	to       netip.AddrPort
	lasts    time.Duration
}

// serveTunnel opens a tunnel: a websocket whose binary messages are the bytes of a TCP connection from
// the endpoint's interface.
func (a *Account) serveTunnel(w http.ResponseWriter, r *http.Request) error {
	id, began := a.requestID(), a.cfg.Clock.Now()
	req := wire.Request{Protocol: wire.InstanceConnect, Action: openTunnel, Form: r.URL.Query()}
	a.calls.add(req.Action)
	t, key, err := a.admitTunnel(r, req)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	if err == nil {
		var done func()
		if done, err = a.tunnels.begin(t.endpoint, cancel); err == nil {
			defer done()
		}
	}
	a.record(r, req, id, key, a.cfg.Clock.Now().Sub(began), err)
	if err != nil {
		refusal := wire.AsError(err)
		a.log.Info("refused", "action", req.Action, "code", refusal.Code, "message", refusal.Message)
		return req.Protocol.WriteError(w, id, refusal)
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := up.Upgrade(w, r, http.Header{"X-Amzn-Requestid": {id}})
	if err != nil {
		return err
	}
	defer ws.Close() //nolint:errcheck // the tunnel has ended
	a.carry(ctx, ws, t)
	return nil
}

// admitTunnel checks a request for a tunnel. key is the access key that signed it.
func (a *Account) admitTunnel(r *http.Request, req wire.Request) (t tunnelRequest, key string, err error) {
	cred, err := wire.VerifyPresigned(r, a.tokens.Credentials, a.cfg.Clock.Now())
	key = cred.AccessKeyID
	switch p := req.Protocol; {
	case errors.Is(err, wire.ErrUnknownKey) || errors.Is(err, wire.ErrUnsigned):
		return t, "", p.BadKey
	case err != nil || cred.Service != p.Name || cred.Region != a.cfg.Region:
		return t, "", p.BadSignature
	case a.tokens.Expired(key):
		return t, key, p.Expired
	}
	if refusal := a.faults.Refuse(req.Action, req.Protocol.Throttled); refusal != nil {
		return t, key, refusal
	}
	q := req.Form
	invalid := func(parameter, advice string) error {
		return wire.Refuse("InvalidParameter", "The specified %s is not valid. %s and retry your request.", parameter, advice)
	}
	t.endpoint = q.Get("instanceConnectEndpointId")
	if t.endpoint == "" {
		return t, key, invalid("InstanceConnectEndpointId", "Specify an EC2 Instance Connect Endpoint")
	}
	if err := a.authorize(req, key); err != nil {
		return t, key, err
	}
	facts, ok := a.compute.ConnectEndpoint(t.endpoint)
	if !ok || facts.DNSName != hostOf(r) {
		return t, key, wire.RefuseWith(http.StatusNotFound, "ResourceNotFoundException", "The EC2 Instance Connect Endpoint %s does not exist.", t.endpoint)
	}
	if !facts.Ready {
		return t, key, wire.Refuse("InvalidState", "The EC2 Instance Connect Endpoint %s is not available.", t.endpoint)
	}
	port, err := strconv.ParseUint(q.Get("remotePort"), 10, 16)
	if err != nil || port != 22 && port != 3389 {
		return t, key, invalid("RemotePort", "Specify either 22 or 3389 as the RemotePort")
	}
	address, err := netip.ParseAddr(q.Get("privateIpAddress"))
	if err != nil || !facts.VPC.Contains(address) {
		return t, key, invalid("PrivateIpAddress", "Specify a private address of the VPC")
	}
	t.from, t.to, t.lasts = facts.Interface, netip.AddrPortFrom(address, uint16(port)), maxTunnelDuration
	if asked := q.Get("maxTunnelDuration"); asked != "" {
		seconds, err := strconv.Atoi(asked)
		if err != nil || seconds < 1 || seconds > int(maxTunnelDuration/time.Second) {
			return t, key, invalid("MaxTunnelDuration", "Specify from 1 to 3600 seconds")
		}
		t.lasts = time.Duration(seconds) * time.Second
	}
	t.lasts = a.faults.TunnelLifetime(t.lasts)
	return t, key, nil
}

// carry carries the bytes of a tunnel until one end closes, its time is over, or ctx ends. The endpoint
// connects after the websocket is open, as on AWS: what it cannot reach is the reason of the closure.
func (a *Account) carry(ctx context.Context, ws *websocket.Conn, t tunnelRequest) {
	closing := func(code int, reason string) {
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(10*time.Second))
	}
	over := a.cfg.Clock.After(t.lasts)
	dialing, dialed := context.WithTimeout(ctx, tunnelDial)
	conn, err := a.cfg.Network.DialFrom(dialing, t.from, t.to)
	dialed()
	if err != nil {
		closing(websocket.CloseInternalServerErr, "Unable to connect to target")
		return
	}
	defer conn.Close() //nolint:errcheck // the tunnel has ended
	ended := make(chan struct{}, 2)
	go func() {
		defer func() { ended <- struct{}{} }()
		for {
			kind, message, err := ws.ReadMessage()
			if err != nil || kind != websocket.BinaryMessage {
				return
			}
			if _, err := conn.Write(message); err != nil {
				return
			}
		}
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		buffer := make([]byte, tunnelFrame)
		for {
			n, err := conn.Read(buffer)
			if n > 0 && ws.WriteMessage(websocket.BinaryMessage, buffer[:n]) != nil {
				return
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					closing(websocket.CloseNormalClosure, "")
				}
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-over:
		closing(websocket.CloseNormalClosure, "Maximum tunnel duration reached")
	case <-ctx.Done():
		closing(websocket.CloseGoingAway, "")
	}
}
