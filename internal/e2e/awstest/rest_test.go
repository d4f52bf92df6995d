package awstest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	n := ensured(ctx, t, c, networkSpec())
	all := made(ctx, t, c, a.newMachines(t, c).on(w), machineSpecs(n)[:2])
	spec := awsaddress.Spec{Cluster: "demo", Name: "lb", InstanceID: all[0].ID}
	first, err := awsaddress.Ensure(ctx, c, "", spec)
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := awsaddress.Ensure(ctx, c, "", spec)
	if err != nil {
		t.Fatal(err)
	}
	if adopted.AllocationID != first.AllocationID {
		t.Errorf("a second address %s beside %s", adopted.PublicIP, first.PublicIP)
	}
	if _, drift, err := awsaddress.Observe(ctx, c, first.AllocationID, spec); err != nil || len(drift) > 0 {
		t.Errorf("drift %v, error %v", drift, err)
	}
	if m, _, err := machine.Observe(ctx, c, all[0].ID, machineSpecs(n)[0]); err != nil || m.PublicIP != first.PublicIP {
		t.Errorf("the machine is at %s, the address is %s (%v)", m.PublicIP, first.PublicIP, err)
	}

	if _, err := c.EC2.DisassociateAddress(ctx, &ec2.DisassociateAddressInput{AssociationId: sdk.String(adopted.AssociationID)}); err != nil {
		t.Fatal(err)
	}
	if _, drift, err := awsaddress.Observe(ctx, c, first.AllocationID, spec); err != nil || len(drift) != 1 || !strings.Contains(drift[0].String(), "not associated") {
		t.Errorf("drift %v, error %v", drift, err)
	}
	spec.InstanceID = all[1].ID
	moved, err := awsaddress.Ensure(ctx, c, first.AllocationID, spec)
	if err != nil || moved.PublicIP != first.PublicIP || moved.InstanceID != all[1].ID {
		t.Errorf("moved to %+v, %v", moved, err)
	}
	for range 2 {
		if err := awsaddress.Delete(ctx, c, first.AllocationID, infraaws.Claim{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := awsaddress.Observe(ctx, c, first.AllocationID, spec); !errors.Is(err, infraaws.ErrNotFound) {
		t.Errorf("after the release: %v", err)
	}
}

func TestKeyStore(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	store := keystore.New(c, keystore.Config{Cluster: "demo"})
	opts := pki.Options{Store: pki.StoreSSM, Prefix: keystore.DefaultPrefix("demo")}
	first, err := pki.Bootstrap(ctx, store, "demo", time.Now(), random, opts)
	if err != nil {
		t.Fatal(err)
	}
	again, err := pki.Bootstrap(ctx, store, "demo", time.Now(), random, opts)
	if err != nil {
		t.Fatal(err)
	}
	if first.KubernetesCA != again.KubernetesCA || first.ServiceAccountPublicKey != again.ServiceAccountPublicKey {
		t.Error("a second run made other keys")
	}
	if err := store.Create(ctx, pki.KeyEtcdCA, []byte("other")); !errors.Is(err, pki.ErrExists) {
		t.Errorf("overwriting: %v", err)
	}
	if _, err := store.Get(ctx, "etcd-ca-9.key"); !errors.Is(err, pki.ErrNotFound) {
		t.Errorf("reading what is not there: %v", err)
	}
	if err := store.Create(ctx, "../other", []byte("x")); !errors.Is(err, pki.ErrUnknownName) {
		t.Errorf("a name that no key has: %v", err)
	}
	found, err := store.Look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pki.Names(pki.Generations{}) {
		value, present := found[name]
		if !present || pki.Secret(name) != (value == "") {
			t.Errorf("%s: present %v, value of %d bytes", name, present, len(value))
		}
	}
	if err := errors.Join(store.Rewrap(ctx), store.Retag(ctx, []string{"owner"})); err != nil {
		t.Error(err)
	}
	out, err := c.SSM.GetParameter(ctx, &ssm.GetParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.KeyKubernetesCA)})
	if err != nil || strings.Contains(sdk.ToString(out.Parameter.Value), "PRIVATE KEY") {
		t.Errorf("the key can be read without decrypting it (%v)", err)
	}
	for range 2 {
		if err := store.Purge(ctx); err != nil {
			t.Fatal(err)
		}
	}
	a.Empty()
	if !slices.Contains(w.changes(), "PutParameter") {
		t.Error("the test did not test anything")
	}
}

func TestCaller(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	account, arn, err := a.client(&wire{}).Caller(ctx)
	if err != nil || len(account) != 12 || arn == "" {
		t.Errorf("%s %s %v", account, arn, err)
	}
}
