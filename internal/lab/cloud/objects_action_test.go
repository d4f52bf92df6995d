package cloud

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestS3Action(t *testing.T) {
	for _, tt := range []struct{ method, url, copied, want string }{
		{"GET", "/", "", "ListBuckets"},
		{"OPTIONS", "/b", "", "OPTIONS"},
		{"PUT", "/b", "", "CreateBucket"},
		{"HEAD", "/b/", "", "HeadBucket"},
		{"DELETE", "/b", "", "DeleteBucket"},
		{"GET", "/b", "", "ListObjects"},
		{"GET", "/b?list-type=2&prefix=a", "", "ListObjectsV2"},
		{"GET", "/b?versions", "", "ListObjectVersions"},
		{"GET", "/b?uploads", "", "ListMultipartUploads"},
		{"GET", "/b?location", "", "GetBucketLocation"},
		{"PUT", "/b?versioning", "", "PutBucketVersioning"},
		{"DELETE", "/b?policy", "", "DeleteBucketPolicy"},
		{"GET", "/b?acl", "", "GetBucketAcl"},
		{"GET", "/b?publicAccessBlock", "", "GetPublicAccessBlock"},
		{"PUT", "/b/?publicAccessBlock", "", "PutPublicAccessBlock"},
		{"DELETE", "/b?publicAccessBlock", "", "DeletePublicAccessBlock"},
		{"GET", "/b?policyStatus", "", "GetBucketPolicyStatus"},
		{"PUT", "/b?tagging", "", "PutBucketTagging"},
		{"POST", "/b?delete", "", "DeleteObjects"},
		{"GET", "/b/k", "", "GetObject"},
		{"HEAD", "/b/k/l", "", "HeadObject"},
		{"PUT", "/b/k", "", "PutObject"},
		{"PUT", "/b/k", "/b/other", "CopyObject"},
		{"DELETE", "/b/k", "", "DeleteObject"},
		{"POST", "/b/k?uploads", "", "CreateMultipartUpload"},
		{"PUT", "/b/k?partNumber=1&uploadId=u", "", "UploadPart"},
		{"GET", "/b/k?uploadId=u", "", "ListParts"},
		{"POST", "/b/k?uploadId=u", "", "CompleteMultipartUpload"},
		{"DELETE", "/b/k?uploadId=u", "", "AbortMultipartUpload"},
		{"GET", "/b/k?acl", "", "GetObjectAcl"},
		{"PUT", "/b/k?tagging", "", "PutObjectTagging"},
		{"PUT", "/b/k?retention", "", "PutObjectRetention"},
		{"GET", "/b/k?legal-hold", "", "GetObjectLegalHold"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, "http://s3"+tt.url, http.NoBody)
		if tt.copied != "" {
			r.Header.Set("X-Amz-Copy-Source", tt.copied)
		}
		if got := s3Action(r); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.url, got, tt.want)
		}
	}
}
