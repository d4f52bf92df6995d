# What a web server of one's own shows at https://oidc.example.com/demo/.well-known/openid-configuration and
# https://oidc.example.com/demo/openid/v1/jwks. The keys of a cluster are k8s_pki.<name>.ref.service_account_public_key_pem.
output "issuer_documents" {
  value = provider::k8s::issuer_documents("https://oidc.example.com/demo", <<-EOT
    -----BEGIN PUBLIC KEY-----
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEH6cuzP8XuD5wal6wf9M6xDljTOPL
    X2i8uIp/C/ASqiIGUeeKQtX0/IR3qCXyThP/dbCiHrF3v1cuhBOHY8CLVg==
    -----END PUBLIC KEY-----
  EOT
  )
}
