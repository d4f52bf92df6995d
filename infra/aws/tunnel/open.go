package tunnel

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/gorilla/websocket"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

const (
	// service signs requests for tunnels, action is what policies allow.
	service = "ec2-instance-connect"
	action  = "ec2-instance-connect:OpenTunnel"
	// urlExpires is how long the signed URL of a tunnel is valid, in seconds, as with the AWS CLI.
	urlExpires = "60"
	// busyPoll is the pause before a tunnel is asked for again, if the endpoint has all that it may have.
	busyPoll = time.Second
	// maxMessage is the longest message sent. The AWS CLI sends 65000 bytes at most.
	maxMessage = 32 << 10
)

// busyError says that an endpoint has as many tunnels as it may have, or is throttled.
type busyError struct{ error }

func (e *busyError) Unwrap() error { return e.error }

// open opens a tunnel to port 22 of a host's address. While the endpoint has all tunnels that it may
// have, it asks again until ctx ends.
func open(ctx context.Context, c *aws.Client, e types.Ec2InstanceConnectEndpoint, h remote.Host, lasts time.Duration) (net.Conn, error) {
	if h.Port != 0 && h.Port != 22 {
		return nil, fmt.Errorf("an %s leads to port 22 only, and its SSH port is %d", EndpointName, h.Port)
	}
	for {
		conn, err := try(ctx, c, e, h.Address, lasts)
		var busy *busyError
		if !errors.As(err, &busy) {
			return conn, err
		}
		pause := time.NewTimer(busyPoll)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, err
		}
	}
}

func try(ctx context.Context, c *aws.Client, e types.Ec2InstanceConnectEndpoint, address string, lasts time.Duration) (net.Conn, error) {
	id, name := sdk.ToString(e.InstanceConnectEndpointId), sdk.ToString(e.DnsName)
	creds, err := c.InstanceConnect.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	query := url.Values{
		"instanceConnectEndpointId": {id}, "privateIpAddress": {address}, "remotePort": {"22"},
		"maxTunnelDuration": {strconv.Itoa(int(lasts / time.Second))}, "X-Amz-Expires": {urlExpires},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/openTunnel?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	nothing := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, creds, req, hex.EncodeToString(nothing[:]), service, c.Region, time.Now())
	if err != nil {
		return nil, fmt.Errorf("sign the request for a tunnel: %w", err)
	}
	dialer, scheme := websocket.Dialer{Proxy: http.ProxyFromEnvironment}, "wss"
	if at := c.InstanceConnect.URL; at != nil {
		dialer = websocket.Dialer{NetDialContext: dialAt(at)}
		if at.Scheme == "http" {
			scheme = "ws"
		}
	}
	opening := limited(&dialer)
	ws, resp, err := dialer.DialContext(ctx, scheme+strings.TrimPrefix(signed, "https"), nil)
	if err != nil {
		if resp == nil {
			return nil, fmt.Errorf("the %s %s: %w", EndpointName, id, err)
		}
		return nil, fmt.Errorf("the %s %s: %w", EndpointName, id, refusal(resp))
	}
	opening.end()
	return &conn{ws: ws, endpoint: id}, nil
}

// maxOpening bounds what an endpoint sends until a tunnel is open: a TLS handshake and the head of an answer.
const maxOpening = 1 << 20

// opening is the connection of a tunnel that is being opened.
type opening struct {
	net.Conn
	in   io.Reader
	open atomic.Bool
}

// limited bounds what the connection that a dialer makes reads until the opening ends.
func limited(d *websocket.Dialer) *opening {
	o, dial := &opening{}, d.NetDialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	d.NetDialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		o.Conn, o.in = conn, foreign.Reader(conn, maxOpening, EndpointName)
		return o, nil
	}
	return o
}

func (o *opening) end() { o.open.Store(true) }

// Read implements net.Conn.
func (o *opening) Read(p []byte) (int, error) {
	if o.open.Load() {
		return o.Conn.Read(p)
	}
	return o.in.Read(p)
}

// dialAt returns how to connect to the host of a URL, whatever the name.
func dialAt(at *url.URL) func(ctx context.Context, network, name string) (net.Conn, error) {
	port := cmp.Or(at.Port(), map[string]string{"http": "80"}[at.Scheme], "443")
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(at.Hostname(), port))
	}
}

// refusal reads the answer of an endpoint that opens no tunnel. AWS documents neither its form nor its
// codes.
func refusal(resp *http.Response) error {
	defer resp.Body.Close() //nolint:errcheck // read only
	var said struct{ ErrorCode, Message string }
	raw, _ := foreign.ReadAll(resp.Body, 16<<10, EndpointName)
	if json.Unmarshal(raw, &said) != nil || said.ErrorCode == "" {
		said.ErrorCode = strings.ReplaceAll(http.StatusText(resp.StatusCode), " ", "")
	}
	err := error(&smithy.GenericAPIError{Code: said.ErrorCode, Message: cmp.Or(said.Message, resp.Status)})
	denied := (*aws.DeniedError)(nil)
	switch named := aws.NameAction(err, action); {
	case errors.As(named, &denied):
		return named
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError || slices.Contains(busyCodes, said.ErrorCode):
		return &busyError{err}
	}
	return err
}

// busyCodes are those of an endpoint that may open a tunnel later.
var busyCodes = []string{"ServiceQuotaExceededException", "ServiceQuotaExceeded", "LimitExceededException", "ThrottlingException"}

// conn is the byte stream of a tunnel: the binary messages of a websocket.
type conn struct {
	ws       *websocket.Conn
	endpoint string
	rest     io.Reader // of the message that is being read
}

// ClosedError says that an endpoint has closed a tunnel, and why.
type ClosedError struct {
	EndpointID string
	Reason     string // in AWS' words, such as "Unable to connect to target"
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("the %s %s closed the tunnel: %s", EndpointName, e.EndpointID, e.Reason)
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for {
		if c.rest == nil {
			_, next, err := c.ws.NextReader()
			if err != nil {
				return 0, c.explain(err)
			}
			c.rest = next
		}
		n, err := c.rest.Read(p)
		if errors.Is(err, io.EOF) {
			c.rest, err = nil, nil
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, c.explain(err)
		}
	}
}

func (c *conn) explain(err error) error {
	var closed *websocket.CloseError
	switch {
	case !errors.As(err, &closed):
		return err
	case closed.Code == websocket.CloseNormalClosure:
		return io.EOF
	}
	return &ClosedError{EndpointID: c.endpoint, Reason: cmp.Or(closed.Text, "code "+strconv.Itoa(closed.Code))}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	written := 0
	for part := range slices.Chunk(p, maxMessage) {
		if err := c.ws.WriteMessage(websocket.BinaryMessage, part); err != nil {
			return written, c.explain(err)
		}
		written += len(part)
	}
	return written, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	return c.ws.Close()
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.ws.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.ws.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.ws.SetReadDeadline(t), c.ws.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.ws.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.ws.SetWriteDeadline(t) }
