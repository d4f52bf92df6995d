// Command registry serves one image over HTTPS to those who know a login. The image is copied from another registry, under another name.
package main

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	if len(os.Args) != 7 {
		log.Fatal("usage: registry address certificate key login-file image-to-copy its-name-here")
	}
	address, certificate, key, login, from, to := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if err := copyImage(from, to, images); err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: address, ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wanted, err := os.ReadFile(login) // read for every request, so that it can change
		user, password, _ := r.BasicAuth()
		if err != nil || subtle.ConstantTimeCompare([]byte(user+":"+password), []byte(strings.TrimSpace(string(wanted)))) != 1 {
			fmt.Printf("refused %s %s\n", r.Method, r.URL.Path)
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, "wrong login", http.StatusUnauthorized)
			return
		}
		fmt.Printf("served %s %s\n", r.Method, r.URL.Path)
		images.ServeHTTP(w, r)
	})}
	log.Fatal(server.ListenAndServeTLS(certificate, key))
}

// copyImage copies an image into a registry that does not listen yet.
func copyImage(from, to string, images http.Handler) error {
	source, err := name.ParseReference(from, name.Insecure)
	if err != nil {
		return err
	}
	image, err := remote.Image(source)
	if err != nil {
		return err
	}
	here := httptest.NewServer(images)
	defer here.Close()
	target, err := name.ParseReference(strings.TrimPrefix(here.URL, "http://")+"/"+to, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(target, image)
}
