// Package tf is what all resources of the provider share on Terraform's side:
// validators, plan modifiers, references, conversions between the framework's
// values and Go's, timeouts, drift and private state.
//
// It knows no resource and nothing of clusters, and imports no other package of
// this repository.
package tf
