# The identities of the recipients are kept outside of the AWS account.
resource "k8s_pki_copy" "example" {
  pki = k8s_pki.this.ref
  recipients = [
    "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
  ]
  bucket = "example-copies"
  region = "eu-west-1"
}

output "key_copy" {
  value = k8s_pki_copy.example.key
}
