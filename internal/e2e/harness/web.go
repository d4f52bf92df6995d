package harness

// Web is an application that must not be interrupted: two pods, on different nodes as long as two
// nodes accept pods. Its PodDisruptionBudget requires one of them at any time. Its page names the
// pod that serves it.
const Web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        nodeTaintsPolicy: Honor # a drained node does not count
        labelSelector: {matchLabels: {app: web}}
      containers:
      - name: web
        image: k8s-lab/toolbox:1
        command: ["sh", "-c", "mkdir -p /www && echo served by $HOSTNAME > /www/index.html && echo started && { httpd -f -v -p 8080 -h /www & trap 'kill $!' TERM; wait; }"]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 5}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: web}}
`
