package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed checks.yaml
var workload string

// becoming is the time limit of checks that succeed soon after a cluster was made.
var becoming = 2 * time.Minute

// kubeconfig issues an administrator's certificate.
func (t *trial) kubeconfig(ctx context.Context) error {
	endpoint, err := t.endpoint(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(t.bin(), "k8s-kubeconfig"), "--cluster", t.name, "--endpoint", endpoint, "--output", t.kubeconfigFile())
	cmd.Env = inherited(os.Environ())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("k8s-kubeconfig: %w\n%s", err, out)
	}
	return nil
}

// kube runs kubectl as the administrator.
func (t *trial) kube(ctx context.Context, stdin string, args ...string) (string, error) {
	_, _ = fmt.Fprintf(t.log, "$ kubectl %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, t.kubectl, append([]string{"--kubeconfig", t.kubeconfigFile(), "--request-timeout=30s"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	_, _ = fmt.Fprint(t.log, stdout.String(), stderr.String())
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), err
}

// inPod runs a shell script in a pod. The output has both streams; the script's failure is no error.
func (t *trial) inPod(ctx context.Context, pod, script string) (string, error) {
	return t.kube(ctx, "", "exec", pod, "--", "sh", "-c", "("+script+") 2>&1; true")
}

// checkNodes wants every node Ready, and notes what runs on them.
func (t *trial) checkNodes(ctx context.Context) error {
	return eventually(ctx, becoming, func(ctx context.Context) error {
		out, err := t.kube(ctx, "", "get", "nodes", "-o",
			`jsonpath={range .items[*]}{.metadata.name}|{.status.conditions[?(@.type=="Ready")].status}|{.status.nodeInfo.kubeletVersion}, {.status.nodeInfo.osImage}, Linux {.status.nodeInfo.kernelVersion}, {.status.nodeInfo.containerRuntimeVersion}{"\n"}{end}`)
		if err != nil {
			return err
		}
		var systems []string
		for line := range strings.Lines(out) {
			f := strings.SplitN(strings.TrimSpace(line), "|", 3)
			if len(f) != 3 || f[1] != "True" {
				return fmt.Errorf("a node is not Ready: %s", strings.TrimSpace(line))
			}
			systems = append(systems, f[2])
		}
		if len(systems) == 0 {
			return errors.New("there are no nodes")
		}
		slices.Sort(systems)
		t.report.version("nodes", strings.Join(slices.Compact(systems), "; "))
		return nil
	})
}

// startPods starts a web server on two nodes, behind a Service.
func (t *trial) startPods(ctx context.Context) error {
	if _, err := t.kube(ctx, strings.ReplaceAll(workload, "IMAGE", t.image), "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := t.kube(ctx, "", "rollout", "status", "deployment/web", "--request-timeout=0", "--timeout=5m"); err != nil {
		events, _ := t.kube(ctx, "", "get", "events", "--field-selector=type=Warning")
		return fmt.Errorf("%w\n%s", err, events)
	}
	out, err := t.kube(ctx, "", "get", "pods", "-l", "app=web", "-o", `jsonpath={range .items[*]}{.spec.nodeName}={.metadata.name}{"\n"}{end}`)
	if err != nil {
		return err
	}
	t.pods = map[string]string{}
	for _, line := range strings.Fields(out) {
		node, pod, _ := strings.Cut(line, "=")
		t.pods[node] = pod
	}
	if len(t.pods) < 2 {
		return fmt.Errorf("the pods are not on two nodes: %s", strings.Join(strings.Fields(out), " "))
	}
	return nil
}

// fromEach makes a check in the pod of every node, until it succeeds.
func (t *trial) fromEach(ctx context.Context, check func(ctx context.Context, pod string) error) error {
	var errs []error
	for node, pod := range t.pods {
		if err := eventually(ctx, becoming, func(ctx context.Context) error { return check(ctx, pod) }); err != nil {
			errs = append(errs, fmt.Errorf("from a pod on %s: %w", node, err))
		}
	}
	return errors.Join(errs...)
}

// checkDNS resolves the name of the API server's Service. The name is what matters: a Service
// answers no ping.
func (t *trial) checkDNS(ctx context.Context) error {
	ip, err := t.kube(ctx, "", "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		return err
	}
	return t.fromEach(ctx, func(ctx context.Context, pod string) error {
		out, err := t.inPod(ctx, pod, "timeout 8 ping -c 1 -W 1 kubernetes.default.svc.cluster.local")
		if err == nil && !strings.Contains(out, "("+ip+")") {
			err = fmt.Errorf("kubernetes.default.svc.cluster.local is not %s: %s", ip, strings.TrimSpace(out))
		}
		return err
	})
}

// checkEgress reaches a web server on the internet by its name.
func (t *trial) checkEgress(ctx context.Context) error {
	return t.fromEach(ctx, func(ctx context.Context, pod string) error {
		out, err := t.inPod(ctx, pod, "timeout 10 wget -q -O /dev/null '"+t.egress+"' && echo reached")
		if err == nil && !strings.Contains(out, "reached") {
			err = fmt.Errorf("%s is not reached: %s", t.egress, strings.TrimSpace(out))
		}
		return err
	})
}

// checkLogs reads the pods' logs through the API server, which asks the kubelets.
func (t *trial) checkLogs(ctx context.Context) error {
	return t.fromEach(ctx, func(ctx context.Context, pod string) error {
		out, err := t.kube(ctx, "", "logs", pod)
		if err == nil && !strings.Contains(out, "started") {
			err = fmt.Errorf("kubectl logs prints %q, and not what the pod printed", out)
		}
		return err
	})
}

// checkService reaches both pods by the name of their Service, from both.
func (t *trial) checkService(ctx context.Context) error {
	return t.fromEach(ctx, func(ctx context.Context, pod string) error {
		out, err := t.inPod(ctx, pod, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do timeout 5 wget -q -O - http://web.default.svc.cluster.local/; done")
		if err != nil {
			return err
		}
		for node, server := range t.pods {
			if !strings.Contains(out, "served by "+server) {
				return fmt.Errorf("the Service does not reach the pod on %s: %s", node, strings.TrimSpace(out))
			}
		}
		return nil
	})
}
