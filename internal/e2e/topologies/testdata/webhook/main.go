// Webhook is an admission webhook that denies objects with the name "denied".
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"time"

	admission "k8s.io/api/admission/v1"
)

func main() {
	review := func(w http.ResponseWriter, r *http.Request) {
		var in admission.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		in.Response = &admission.AdmissionResponse{UID: in.Request.UID, Allowed: in.Request.Name != "denied"}
		in.Request = nil
		_ = json.NewEncoder(w).Encode(in)
	}
	server := http.Server{Addr: ":8443", Handler: http.HandlerFunc(review), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServeTLS("/webhook/tls.crt", "/webhook/tls.key"))
}
