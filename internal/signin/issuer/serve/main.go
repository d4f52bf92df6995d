// Command serve runs the issuer of package issuer, for tests on machines: serve ADDRESS CERTIFICATE KEY. Its URL is
// https://ADDRESS.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/signin/issuer"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: serve ADDRESS CERTIFICATE KEY")
		os.Exit(2)
	}
	people := issuer.People{"ada": {"developers"}, "bob": {"visitors"}}
	server := &http.Server{Addr: os.Args[1], ReadHeaderTimeout: 10 * time.Second, Handler: issuer.New("https://"+os.Args[1], people, time.Hour)}
	fmt.Fprintln(os.Stderr, server.ListenAndServeTLS(os.Args[2], os.Args[3]))
	os.Exit(1)
}
