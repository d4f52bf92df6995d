package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// systemObjects are the objects that the cluster needs, compared with what exists.
type systemObjects struct {
	wanted []*unstructured.Unstructured
	terms  kube.Terms
	stale  []kube.ObjectRef // bindings of entries that are no longer wanted
	// concerns are entries that give nothing yet. A namespace and a role are often made after the control plane, by
	// another resource that needs it.
	concerns []finding.Finding
}

// Entries returns who may do what, as the bindings in the cluster say, in the order of their names. Bindings that
// somebody has changed are not among them.
func (x ControlPlane) Entries(ctx context.Context, f *fleet.Fleet, endpoint string) (out []access.Entry, err error) {
	a := f.Access(x.Spec.Cluster.PKI)
	defer a.Close()
	found, err := fleet.AskAPI(ctx, a, endpoint, bindings)
	if err != nil {
		return nil, fmt.Errorf("reading who has access: %w", err)
	}
	for _, o := range found {
		if e, ok := access.Read(o); ok {
			out = append(out, e)
		}
	}
	return out, nil
}

// bindings returns the bindings of entries that exist.
func bindings(ctx context.Context, c *kube.Client) (out []*unstructured.Unstructured, err error) {
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
		found, err := c.Labelled(ctx, rbacv1.SchemeGroupVersion.WithKind(kind), access.Label)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// lookUp finds out through one API server which objects can exist and which must not.
func (o *operation) lookUp(ctx context.Context, c *kube.Client) (s systemObjects, err error) {
	all := o.want.Spec.SystemObjects()
	var waiting []kube.ObjectRef
	if waiting, s.concerns, err = unmet(ctx, c, o.want.Spec.Access); err != nil {
		return s, err
	}
	s.wanted = slices.DeleteFunc(slices.Clone(all), func(u *unstructured.Unstructured) bool { return slices.ContainsFunc(waiting, kube.RefOf(u).Same) })
	s.terms = kube.Terms{Force: true, Replace: kube.RefsOf(all)}
	found, err := bindings(ctx, c)
	if err != nil {
		return s, err
	}
	s.stale = slices.DeleteFunc(kube.RefsOf(found), func(ref kube.ObjectRef) bool { return slices.ContainsFunc(s.terms.Replace, ref.Same) })
	return s, nil
}

// unmet returns the bindings whose namespaces do not exist, and what a person should know of entries that give nothing.
func unmet(ctx context.Context, c *kube.Client, entries []access.Entry) (waiting []kube.ObjectRef, concerns []finding.Finding, err error) {
	var needs []kube.ObjectRef
	for _, e := range entries {
		needs = append(needs, kube.RefOf(e.RoleObject()))
		if e.Namespace != "" {
			needs = append(needs, namespaceOf(e))
		}
	}
	absent, err := c.Absent(ctx, needs)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		f := finding.Finding{Subject: "access of " + e.String(), Kind: finding.Object}
		switch role := kube.RefOf(e.RoleObject()); {
		case e.Namespace != "" && slices.ContainsFunc(absent, namespaceOf(e).Same):
			waiting = append(waiting, kube.RefOf(e.Binding()))
			f.Problem, f.Target = finding.Unbound, namespaceOf(e).String()
		case slices.ContainsFunc(absent, role.Same):
			f.Problem, f.Target = finding.Detached, role.String()
		default:
			continue
		}
		concerns = append(concerns, f)
	}
	return waiting, concerns, nil
}

func namespaceOf(e access.Entry) kube.ObjectRef {
	return kube.ObjectRef{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Namespace", Name: e.Namespace}
}

// objectDrift compares the objects that the cluster needs through the first API server that
// answers. A finding names the object.
func (o *operation) objectDrift(ctx context.Context, r *rollout.Report) {
	type answer struct{ drift, concerns []finding.Finding }
	found, err := fleet.AskAPIServers(ctx, o.Access, rollout.MachinesOf(o.Machines), func(ctx context.Context, m *fleet.Machine) (a answer, err error) {
		c, err := o.ready(ctx, m)
		if err != nil {
			return a, err
		}
		s, err := o.lookUp(ctx, c)
		if err != nil {
			return a, err
		}
		if a.drift, err = c.Drift(ctx, s.wanted, s.terms); err != nil {
			return a, err
		}
		for _, ref := range s.stale {
			a.drift = append(a.drift, finding.Finding{Subject: ref.String(), Kind: finding.Object, Problem: finding.NotWanted})
		}
		a.concerns = s.concerns
		return a, nil
	})
	if err != nil {
		r.CannotJudge(finding.SystemObjects, "", err)
	}
	r.Find(found.drift...)
	r.Concerns = append(r.Concerns, found.concerns...)
}

// applyObjects applies the objects that the cluster needs, if they differ, and deletes the bindings of entries that
// are no longer wanted, also when an object could not be applied: what was taken away must not stay because of another one.
func (o *operation) applyObjects(ctx context.Context) error {
	if len(o.Reachable()) == 0 {
		return nil // no machine was reached; the operation's error reports it
	}
	err := fleet.Within(ctx, fleet.APIBudget, "a ready API server", func(ctx context.Context) error {
		concerns, err := fleet.AskInTurn(ctx, fleet.AnswerShare, kube.Unanswered, fleet.QuestionsFor(o.Reached(), func(ctx context.Context, m *fleet.Machine) ([]finding.Finding, error) {
			c, err := o.ready(ctx, m)
			if err != nil {
				return nil, err
			}
			s, err := o.lookUp(ctx, c)
			if err != nil {
				return nil, err
			}
			_, err = c.Apply(ctx, s.wanted, s.terms)
			_, pruned := c.Prune(ctx, slices.Concat(s.stale, o.had), s.terms.Replace)
			return s.concerns, errors.Join(err, pruned)
		}))
		o.Note(func(r *rollout.Record) { r.Concerns = concerns })
		return err
	})
	if err != nil {
		return fmt.Errorf("applying the system RBAC objects: %w", err)
	}
	return nil
}
