package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/signin"
)

// signIn is a credential plugin: it writes a token for kubectl. What the person has to do is said on standard error.
func signIn(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("k8s-kubeconfig sign-in", flag.ContinueOnError)
	issuer := flags.String("issuer", "", "URL of the issuer (required)")
	client := flags.String("client-id", "", "client by which the issuer knows kubectl (required)")
	secret := flags.String("client-secret-file", "", "file with the client's secret, if the issuer gave it one")
	scopes := flags.String("scopes", strings.Join(signin.DefaultScopes(), ","), "what to ask the issuer for, separated by commas")
	ca := flags.String("ca-file", "", "file with the certificate authority of the issuer, beside those of this computer")
	device := flags.Bool("device", false, "show a code to enter on any device, in place of opening a browser on this one")
	listen := flags.String("listen", signin.DefaultListen, "where the browser comes back to; the issuer must know http://ADDRESS/")
	cache := flags.String("cache", filepath.Join("~", ".kube", "cache", "k8s-kubeconfig"), "directory for tokens that are still valid")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !strings.HasPrefix(*issuer, "https://") || *client == "" || flags.NArg() > 0 {
		flags.Usage()
		return errors.New("-issuer https://... and -client-id are required")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	r := signin.Request{Issuer: *issuer, ClientID: *client, Scopes: strings.Split(*scopes, ","), Device: *device, Listen: *listen,
		Cache: file.AtHome(*cache, home), Browse: func(url string) { browse(context.WithoutCancel(ctx), url) },
		Show: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	if *ca != "" {
		if r.CA, err = os.ReadFile(file.AtHome(*ca, home)); err != nil {
			return fmt.Errorf("-ca-file: %w", err)
		}
	}
	if *secret != "" {
		text, err := os.ReadFile(file.AtHome(*secret, home))
		if err != nil {
			return fmt.Errorf("-client-secret-file: %w", err)
		}
		r.ClientSecret = strings.TrimSpace(string(text))
	}
	token, err := signin.Get(ctx, r)
	if err != nil {
		return errors.New(foreign.Text(err.Error())) // it may quote the issuer
	}
	text, err := token.ExecCredential()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// browse opens a URL in the person's browser, which outlives this program. Where there is none, nothing happens.
func browse(ctx context.Context, url string) {
	command := []string{"xdg-open", url}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open", url}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	}
	_ = exec.CommandContext(ctx, command[0], command[1:]...).Start()
}
