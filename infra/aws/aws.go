// Package aws is the client of AWS that the packages below it share: credentials, retries and pace, errors and advice,
// tags, claims, and what several of them ask about instances and zones. What is made in AWS may not enter: each noun has a
// package of its own below this one, whose functions take the client.
//
// These packages use only aws-sdk-go-v2. Kubernetes components and Terraform may not enter. Everything
// they make carries the cluster's tags, and every Ensure finds by those tags what an interrupted run
// left, and adopts it. So a cluster's name must be unique within an account and region. Retries are
// the SDK's own: throttling in its standard (or adaptive) mode, eventual consistency through
// further error codes. Every wait ends with its context.
package aws
