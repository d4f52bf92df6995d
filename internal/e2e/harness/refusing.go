package harness

import "testing"

// closed is a configuration of authorization that refuses those without credentials, and so health checks: a webhook
// decides about them.
const closed = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: closed
  webhook:
    timeout: 3s
    authorizedTTL: 1s
    unauthorizedTTL: 1s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/kubernetes/closed.kubeconfig}
    matchConditions: [{expression: "request.user == 'system:anonymous'"}]
- {type: Node, name: node}
- {type: RBAC, name: rbac}
`

const closedKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: closed, cluster: {server: "http://127.0.0.1:9999"}}]
contexts: [{name: closed, context: {cluster: closed, user: nobody}}]
users: [{name: nobody}]
current-context: closed
`

// refuse is a webhook that refuses everything.
const refuse = `import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": {"allowed": false, "denied": true}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 9999), H).serve_forever()
`

// RefuseHealthChecks prepares controllers, and returns extra_args of k8s_control_plane with which their API servers refuse those without
// credentials.
func (c *Cluster) RefuseHealthChecks(t *testing.T, controllers ...string) string {
	t.Helper()
	for _, controller := range controllers {
		c.Sh(t, controller, "cat >/etc/kubernetes/closed.yaml <<'END'\n"+closed+"END\ncat >/etc/kubernetes/closed.kubeconfig <<'END'\n"+closedKubeconfig+
			"END\ncat >/run/refuse.py <<'END'\n"+refuse+"END\nsystemd-run --quiet --unit=refuse python3 /run/refuse.py")
	}
	return `{ kube_apiserver = { authorization-mode = null, authorization-config = "/etc/kubernetes/closed.yaml" } }`
}
