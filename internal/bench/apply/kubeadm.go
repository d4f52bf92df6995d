package apply

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
)

// kubectl is the beginning of a command on the first controller.
var kubectl = []string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}

// kubeadm measures how long kubeadm takes on machines that have everything, or from nothing: with the machines, their packages and
// programs in the time.
func (b *bench) kubeadm(nothing bool) func(context.Context, *lab, clock) error {
	return func(ctx context.Context, l *lab, clock clock) error {
		var c cluster
		var nodes []node
		prepare := func(ctx context.Context) (err error) {
			c, nodes, err = b.prepare(ctx, l)
			return err
		}
		if !nothing {
			if err := prepare(ctx); err != nil {
				return err
			}
		}
		if err := clock(whatCluster, func(ctx context.Context) error {
			if nothing {
				if err := prepare(ctx); err != nil {
					return err
				}
			}
			return l.initAndJoin(ctx, c, nodes)
		}); err != nil {
			return err
		}
		return l.usable(ctx, nodes)
	}
}

// usable fails unless every node reaches CoreDNS through its service: kube-proxy, the bridges and the
// routes between them work.
func (l *lab) usable(ctx context.Context, nodes []node) error {
	const reach = "until (: </dev/tcp/" + dnsAddress + "/53) 2>/dev/null; do sleep 0.5; done"
	g, each := errgroup.WithContext(ctx)
	for _, n := range nodes {
		g.Go(func() error {
			if _, err := l.on(each, n.Name, nil, "timeout", "60", "bash", "-c", reach); err != nil {
				return fmt.Errorf("the cluster is not usable: %s does not reach CoreDNS at %s: %w", n.Name, dnsAddress, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// initAndJoin makes the cluster: the first controller alone, then all others at the same time, as
// kubeadm allows. A controller that finds another one being added to etcd tries again, in kubeadm.
func (l *lab) initAndJoin(ctx context.Context, c cluster, nodes []node) error {
	first := nodes[0]
	config, err := c.initConfig(first)
	if err != nil {
		return err
	}
	if _, err := l.on(ctx, first.Name, bytes.NewReader(config), "kubeadm", "init", "--upload-certs", "--config", "/dev/stdin"); err != nil {
		return err
	}
	ca, err := l.on(ctx, first.Name, nil, "cat", "/etc/kubernetes/pki/ca.crt")
	if err != nil {
		return err
	}
	hash, err := caHash([]byte(ca))
	if err != nil {
		return err
	}
	joins, each := errgroup.WithContext(ctx)
	for _, n := range nodes[1:] {
		joins.Go(func() error {
			config, err := c.joinConfig(n, hash)
			if err != nil {
				return err
			}
			_, err = l.on(each, n.Name, bytes.NewReader(config), "kubeadm", "join", "--config", "/dev/stdin")
			return err
		})
	}
	if err := joins.Wait(); err != nil {
		return err
	}
	return l.waitReady(ctx, first.Name, len(nodes))
}

// waitReady waits until all nodes are Ready and all replicas of CoreDNS are available.
func (l *lab) waitReady(ctx context.Context, controller string, nodes int) error {
	ready, err := l.on(ctx, controller, nil, append(kubectl, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=300s", "-o", "name")...)
	if err != nil {
		return err
	}
	if got := len(strings.Fields(ready)); got != nodes {
		return fmt.Errorf("%d nodes are Ready, want %d:\n%s", got, nodes, ready)
	}
	_, err = l.on(ctx, controller, nil, append(kubectl, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=300s")...)
	return err
}

// caHash returns the hash by which kubeadm join knows an authority: of its public key, in DER.
func caHash(certificate []byte) (string, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return "", errors.New("the certificate of the cluster's authority is not PEM")
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
