// Command k8s-kubeconfig writes a short-lived kubeconfig for a cluster whose keys are in SSM
// Parameter Store. It finds AWS credentials as the AWS CLI does. As k8s-kubeconfig sign-in it is a credential
// plugin of kubectl, and needs neither AWS nor keys.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kubeconfig"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "k8s-kubeconfig:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "sign-in" {
		return signIn(ctx, args[1:], os.Stdout)
	}
	flags := flag.NewFlagSet("k8s-kubeconfig", flag.ContinueOnError)
	cluster := flags.String("cluster", "", "name of the cluster (required)")
	endpoint := flags.String("endpoint", "", "URL of its API server, https://host:6443 (required)")
	proxy := flags.String("proxy-url", "", "URL of a proxy on the way there, such as socks5://localhost:1080")
	output := flags.String("output", "", "file to write, with mode 0600; standard output when empty")
	prefix := flags.String("prefix", "", "prefix of the parameters; /k8s/<cluster>/pki/ when empty")
	region := flags.String("region", "", "AWS region; from the environment when empty")
	profile := flags.String("profile", "", "AWS profile; from the environment when empty")
	user := flags.String("user", kubeconfig.DefaultUser, "user name")
	groups := flags.String("groups", kubeconfig.DefaultGroup, "groups, separated by commas; "+access.Masters+" needs no bindings in the cluster, and nothing takes it back")
	ttl := flags.Duration("ttl", kubeconfig.DefaultTTL, "how long the certificate is valid")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *cluster == "" || !strings.HasPrefix(*endpoint, "https://") || flags.NArg() > 0 {
		flags.Usage()
		return errors.New("-cluster and -endpoint https://... are required")
	}
	if *proxy != "" {
		if err := kubeconfig.CheckProxyURL(*proxy); err != nil {
			return fmt.Errorf("-proxy-url: %w", err)
		}
	}
	client, err := infraaws.New(ctx, infraaws.Config{Region: *region, Profile: *profile})
	if err != nil {
		return err
	}
	store := keystore.New(client, keystore.Config{Cluster: *cluster, Prefix: *prefix})
	ref, err := pki.LoadRef(ctx, store, *cluster, pki.Options{Store: pki.StoreSSM, Prefix: *prefix})
	if err != nil {
		return err
	}
	credential, err := kubeconfig.Issue(ctx, store, ref, kubeconfig.Request{
		Endpoint: *endpoint, ProxyURL: *proxy, User: *user, Groups: strings.Split(*groups, ","), TTL: *ttl,
	}, time.Now(), rand.Reader)
	if err != nil {
		return err
	}
	text, err := credential.YAML()
	if err != nil {
		return err
	}
	if *output == "" {
		_, err := os.Stdout.Write(text)
		return err
	}
	return file.Replace(file.AtHome(*output, os.Getenv("HOME")), text, 0o600) // never readable by others
}
