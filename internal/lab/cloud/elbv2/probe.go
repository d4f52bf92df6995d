package elbv2

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// run does one health check from the node. It follows no redirect, and does not verify certificates, as
// AWS's.
// https://docs.aws.amazon.com/elasticloadbalancing/latest/network/target-group-health-checks.html
func (p probe) run(ctx context.Context, from Network) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return from.DialFrom(ctx, p.networkDevice, p.to)
	}
	if p.of.Protocol == "TCP" {
		conn, err := dial(ctx, "", "")
		if err != nil {
			return err
		}
		_ = conn.Close() // the check has passed
		return nil
	}
	client := http.Client{
		Transport: &http.Transport{
			DialContext: dial, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as on AWS
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	url := strings.ToLower(p.of.Protocol) + "://" + p.to.String() + p.of.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	req.Header.Set("User-Agent", "ELB-HealthChecker/2.0")
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	_ = resp.Body.Close() // only the code counts
	if !matches(p.of.Matcher, resp.StatusCode) {
		return fmt.Errorf("health check: the answer has the code %d, not %s", resp.StatusCode, p.of.Matcher)
	}
	return nil
}

// matches reports whether a code is in a list of codes and ranges such as 200,202 and 200-399.
func matches(matcher string, code int) bool {
	for part := range strings.SplitSeq(matcher, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		least, _ := strconv.Atoi(from) // it was checked when it was set
		most, _ := strconv.Atoi(to)
		if least <= code && code <= most {
			return true
		}
	}
	return false
}
