package topologies_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// visit gets a page from outside the VPC, over a connection of its own to a machine or load balancer, whatever the host in the
// URL. trusted are authorities for https.
func visit(ctx context.Context, to, url string, trusted *x509.CertPool) (code int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: trusted},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(to, port))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return resp.StatusCode, string(raw), err
}

// ingress is examples/ingress, with the name of its load balancer.
type ingress struct {
	*harness.Cluster
	balancer string
}

// write writes a manifest of the example, changed by pairs of old and new text.
func (c *ingress) write(t *testing.T, name string, changes ...string) {
	t.Helper()
	text := string(harness.Must[[]byte](t)(os.ReadFile(filepath.Join(suite.Root, "examples/ingress", name))))
	if err := c.WS.WriteFile(name, strings.NewReplacer(changes...).Replace(text)); err != nil {
		t.Fatal(err)
	}
}

// serves waits until URLs are answered by the pods of an app, or by none if app is empty.
func (c *ingress) serves(t *testing.T, app string, trusted *x509.CertPool, urls ...string) {
	t.Helper()
	for _, url := range urls {
		harness.Eventually(t, time.Minute, url+" is answered by "+app, func() error { return served(t.Context(), c.balancer, url, app, trusted) })
	}
}

// served returns why a URL is not answered by a pod of an app, or not with 404 if app is empty.
func served(ctx context.Context, to, url, app string, trusted *x509.CertPool) error {
	code, body, err := visit(ctx, to, url, trusted)
	if err == nil && (app == "" && code != http.StatusNotFound || app != "" && (code != http.StatusOK || !strings.HasPrefix(body, app+"-"))) {
		err = fmt.Errorf("%d %s", code, body)
	}
	return err
}

const (
	shop = "http://shop.example.org/"
	blog = "http://blog.example.org/"
)

// testHosts tells two applications apart by the host of requests to the load balancer, whose name the Ingress has.
func (c *ingress) testHosts(t *testing.T) {
	harness.Eventually(t, 3*time.Minute, "the Ingress has the name of the load balancer", func() (err error) {
		c.balancer, err = suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "ingress", "-n", "websites", "websites", "-o", "jsonpath={.status.loadBalancer.ingress[0].hostname}")
		if err == nil && c.balancer == "" {
			err = errors.New(c.Kubectl(t, "describe", "service", "-n", "traefik", "traefik"))
		}
		return err
	})
	c.serves(t, "shop", nil, shop)
	c.serves(t, "blog", nil, blog)
	c.serves(t, "", nil, "http://other.example.org/", "http://"+c.balancer+"/")
	c.ForServices(t, 1)
}

// testNodePort reaches a Service at its NodePort on a worker, as long as nodeport_cidrs has the client. The NodePorts of a Service with a
// load balancer are open to whoever may use that.
func (c *ingress) testNodePort(t *testing.T, client string) {
	c.Kubectl(t, "expose", "deployment", "-n", "websites", "shop", "--name=port", "--type=NodePort", "--port=80", "--target-port=8080")
	port := func(namespace, service string) string {
		return c.Kubectl(t, "get", "service", "-n", namespace, service, "-o", "jsonpath={.spec.ports[0].nodePort}")
	}
	at := func(namespace, service string) error {
		return served(t.Context(), c.Addresses["worker-0"], "http://shop.example.org:"+port(namespace, service)+"/", "shop", nil)
	}
	private := c.Kubectl(t, "get", "node", "worker-0", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	inside := func() error {
		out, err := c.TrySh(t.Context(), "worker-0", "curl -sS -m 5 http://"+private+":"+port("websites", "port")+"/")
		if err == nil && !strings.HasPrefix(out, "shop-") {
			err = errors.New(out)
		}
		return err
	}
	harness.Eventually(t, 30*time.Second, "the NodePort of the controller answers", func() error { return at("traefik", "traefik") })
	harness.Eventually(t, 30*time.Second, "the NodePort answers on the worker itself", inside)
	if at("websites", "port") == nil {
		t.Fatal("the NodePort is open to everybody")
	}
	c.Apply(t, fmt.Sprintf(`-var=nodeport_cidrs=["%s/32"]`, client))
	harness.Eventually(t, 30*time.Second, "the NodePort answers", func() error { return at("websites", "port") })
	c.Apply(t)
	harness.Eventually(t, 30*time.Second, "the NodePort is closed", func() error {
		if at("websites", "port") == nil {
			return errors.New("it answers")
		}
		return nil
	})
	if err := inside(); err != nil {
		t.Errorf("the NodePort on the worker itself: %v", err)
	}
	c.Kubectl(t, "delete", "service", "-n", "websites", "port")
	c.NoChanges(t)
}

// testChange changes the Ingress, which the running pods of the controller follow: another host, and a certificate.
func (c *ingress) testChange(t *testing.T) {
	dir, before := t.TempDir(), c.traefik(t)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(selfSigned(t, dir, "shop.example.org"))
	c.Kubectl(t, "create", "secret", "tls", "-n", "websites", "shop", "--cert="+filepath.Join(dir, "tls.crt"), "--key="+filepath.Join(dir, "tls.key"))
	c.write(t, "websites.yaml", "blog.example.org", "news.example.org", "  ingressClassName: traefik\n", "  ingressClassName: traefik\n  tls:\n    - hosts: [shop.example.org]\n      secretName: shop\n")
	c.Apply(t)
	began := time.Now()
	c.serves(t, "blog", nil, "http://news.example.org/")
	c.serves(t, "", nil, blog)
	c.serves(t, "shop", trusted, "https://shop.example.org/")
	t.Logf("figures: an Ingress changed: its new host and certificate serve %s after the apply", time.Since(began).Round(100*time.Millisecond))
	if after := c.traefik(t); after != before {
		t.Errorf("pods of the controller before:\n%s\nand after:\n%s", before, after)
	}
	c.NoChanges(t)
}

// traefik returns the pods of the controller, with their nodes and restarts.
func (c *ingress) traefik(t *testing.T) string {
	t.Helper()
	return c.Kubectl(t, "get", "pods", "-n", "traefik", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
}

// twoNodes waits until the controller has two pods, which are ready and on two nodes.
func (c *ingress) twoNodes(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "two pods of the controller are ready on two nodes", func() error {
		pods := c.Kubectl(t, "get", "pods", "-n", "traefik", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if f := strings.Fields(pods); len(f) != 4 || f[0] == f[2] || f[1] != "True" || f[3] != "True" {
			return errors.New(pods)
		}
		return nil
	})
}

// testKill takes one of two pods of the controller away under requests: by deletion, by a new roll-out, and by kill -9.
func (c *ingress) testKill(t *testing.T) {
	pod, _, _ := strings.Cut(c.traefik(t), " ")
	for _, end := range []struct {
		what string
		how  func()
	}{
		{"deleted", func() { c.Kubectl(t, "delete", "pod", "-n", "traefik", pod, "--timeout=60s") }},
		{"rolled out anew", func() { c.Kubectl(t, "rollout", "restart", "-n", "traefik", "deployment/traefik") }},
		{"killed", func() {
			c.Sh(t, "worker-0", "pkill -KILL -x traefik")
			time.Sleep(10 * time.Second)
		}},
	} {
		c.twoNodes(t)
		var asked, failed int
		traffic := c.Requests(t, 20*time.Millisecond, func(ctx context.Context, _ int) error {
			err := served(ctx, c.balancer, shop, "shop", nil)
			if asked++; err != nil && ctx.Err() == nil {
				failed++
			}
			return err
		})
		time.Sleep(3 * time.Second) // of undisturbed requests
		end.how()
		c.Kubectl(t, "rollout", "status", "-n", "traefik", "deployment/traefik", "--timeout=120s")
		harness.Eventually(t, time.Minute, "the pods that leave are gone", func() error {
			if pods := c.traefik(t); strings.Count(pods, "\n") != 2 {
				return errors.New(pods)
			}
			return nil
		})
		time.Sleep(3 * time.Second)
		gap := traffic.Gap(t)
		t.Logf("figures: pods of the Ingress controller %s: %d of %d requests failed, longest gap %s", end.what, failed, asked, gap.Round(10*time.Millisecond))
		if end.what != "killed" && failed > 0 || gap > 15*time.Second {
			t.Errorf("pods of the controller %s: %d requests failed, no answer for %s", end.what, failed, gap)
		}
	}
}

// identity returns what a pause keeps: Nodes with the ids of their instances, and Services with the names of their load balancers.
func (c *ingress) identity(t *testing.T) [2]string {
	t.Helper()
	return [2]string{
		c.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.spec.providerID} {.spec.taints}{"\n"}{end}`),
		c.Kubectl(t, "get", "services", "-A", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.spec.ports[*].nodePort} {.status.loadBalancer.ingress[*].hostname}{"\n"}{end}`),
	}
}

// testPause pauses the cluster with its manager and a load balancer, and resumes it.
func (c *ingress) testPause(t *testing.T) {
	before := c.identity(t)
	c.Apply(t, "-var=paused=true")
	if changes, text, err := c.WS.Plan(t.Context(), "-var=paused=true"); err != nil || changes {
		t.Errorf("the plan of the paused cluster: changes %t, %v\n%s", changes, err, text)
	}
	c.ForServices(t, 1)
	if err := served(t.Context(), c.balancer, shop, "shop", nil); err == nil {
		t.Error("the paused cluster answers")
	}
	c.Apply(t)
	began := time.Now()
	c.LearnMachines(t)
	c.serves(t, "shop", nil, shop)
	t.Logf("figures: a cluster with a load balancer of a Service resumed: it answers %s after the apply", time.Since(began).Round(100*time.Millisecond))
	harness.Eventually(t, time.Minute, "Nodes and Services are as before", func() error {
		if after := c.identity(t); !reflect.DeepEqual(after, before) {
			return fmt.Errorf("they were\n%s\nand are\n%s", before, after)
		}
		return nil
	})
	c.Kubectl(t, "wait", "nodes", "--all", "--for=condition=Ready", "--timeout=60s")
	c.ForServices(t, 1)
	c.NoChanges(t)
}

// testEnd removes the Ingress. The controller and its load balancer stay.
func (c *ingress) testEnd(t *testing.T) {
	_, rule, _ := strings.Cut(string(harness.Must[[]byte](t)(os.ReadFile(filepath.Join(suite.Root, "examples/ingress/websites.yaml")))), "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\n")
	c.write(t, "websites.yaml", "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\n"+rule, "")
	c.Apply(t)
	c.serves(t, "", nil, shop, "http://news.example.org/")
	c.NoChanges(t)
}
