// Package aws is everything the project wants of AWS: the network, the
// machines with their host keys and pod routes, Elastic IPs, and the key store
// in SSM Parameter Store.
//
// It speaks to AWS through aws-sdk-go-v2 only and knows nothing of Kubernetes
// components or of Terraform. Everything it makes carries the cluster's tags,
// and every Ensure finds and adopts, by those tags, what an interrupted run
// left behind; so a cluster's name must be unique within an account and
// region. Retries are the SDK's own: throttling by its standard (or adaptive)
// mode, eventual consistency by further error codes handed to the same
// mechanism. Every wait ends with its context.
package aws
