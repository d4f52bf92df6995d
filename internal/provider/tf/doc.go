// Package tf contains what all resources of the provider share: validators, plan modifiers,
// references, conversions between the framework's values and Go's, timeouts, drift and private
// state.
//
// It knows nothing about single resources or clusters, and imports no other package of this
// repository.
package tf
