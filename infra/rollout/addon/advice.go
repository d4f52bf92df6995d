package addon

import (
	"errors"
	"fmt"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube/field"
)

// withPodAdvice adds the next step to an error about a pod.
func withPodAdvice(err error) error {
	var pod *kube.PodError
	if !errors.As(err, &pod) {
		return err
	}
	return fmt.Errorf("%w\nnext: kubectl --namespace %s describe pod %s\nfix what keeps the pod from running, and apply again", err, pod.Namespace, pod.Pod)
}

// withFieldAdvice adds the next step to an error about fields of an object.
func withFieldAdvice(err error) error {
	var conflict *kube.ConflictError
	var immutable *kube.ImmutableError
	switch {
	case errors.As(err, &conflict):
		var paths []string
		for _, c := range conflict.Conflicts {
			text := c.Field
			if p, err := field.ParsePath(text); err == nil {
				text = p.String()
			}
			paths = append(paths, fmt.Sprintf("%q", text))
		}
		return fmt.Errorf("%w\nnext: to leave the fields to the other manager, remove them from the manifest, or ignore them:\n  ignore_fields = { %q = [%s] }\nTo take them over, set force_conflicts "+
			"= true for one apply, and see that the other manager no longer applies them",
			err, conflict.Ref.String(), strings.Join(paths, ", "))
	case errors.As(err, &immutable) && immutable.Loses != "":
		return fmt.Errorf("%w\n%s of %s cannot be changed. The object would have to be deleted, and with it %s: no apply does that\n"+
			"next: change the manifest back; or save what you need, delete the object with kubectl, and apply again",
			err, strings.Join(immutable.Fields, ", "), immutable.Ref, immutable.Loses)
	case errors.As(err, &immutable):
		return fmt.Errorf("%w\n%s of %s cannot be changed. The object has to be deleted and created again, and this plan did not say so\nnext: plan again; an apply replaces the object if the plan "+
			"lists it in replaces. If it does not, delete the object with kubectl, and apply again",
			err, strings.Join(immutable.Fields, ", "), immutable.Ref)
	}
	return err
}
