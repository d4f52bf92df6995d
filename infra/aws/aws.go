// Package aws does everything that the project needs of AWS: the network, the machines with their
// host keys and pod routes, Elastic IPs, the key store in SSM Parameter Store, and objects in S3.
//
// It uses only aws-sdk-go-v2. What may not enter: Kubernetes components and Terraform. Everything
// it makes carries the cluster's tags, and every Ensure finds by those tags what an interrupted run
// left, and adopts it. So a cluster's name must be unique within an account and region. Retries are
// the SDK's own: throttling in its standard (or adaptive) mode, eventual consistency through
// further error codes. Every wait ends with its context.
package aws
