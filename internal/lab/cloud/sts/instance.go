package sts

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// instanceLifetime is how long the credentials of an instance last, as on EC2. New ones are issued
// when a sixth of it has passed, long before the old ones expire.
const instanceLifetime = 6 * time.Hour

// InstanceSession returns the credentials that an instance has of a role, and when they were issued.
// They belong to this instance only, and are replaced before they expire.
func (s *Service) InstanceSession(role, instance string) (creds aws.Credentials, issued time.Time, err error) {
	arn := s.assumed(role, instance)
	if key, is, ok := s.youngest(arn, instance); ok {
		return aws.Credentials{AccessKeyID: key, SecretAccessKey: is.Secret, SessionToken: is.Token, Expires: is.Expires}, is.Issued, nil
	}
	made, err := s.newSession(session{ARN: arn, UserID: "AROALABLABLABLABLABLA:" + instance, Instance: instance}, nil, instanceLifetime)
	if err != nil {
		return aws.Credentials{}, time.Time{}, err
	}
	is, _ := s.session(made.AccessKeyID)
	return aws.Credentials{AccessKeyID: made.AccessKeyID, SecretAccessKey: made.Secret, SessionToken: made.SessionToken, Expires: made.Expiration}, is.Issued, nil
}

// youngest returns the latest session of an instance, if it need not be replaced yet.
func (s *Service) youngest(arn, instance string) (key string, found session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, is := range s.sessions {
		if is.Instance == instance && is.ARN == arn && is.Issued.After(found.Issued) {
			key, found = id, is
		}
	}
	return key, found, key != "" && s.cfg.Now().Sub(found.Issued) < found.Expires.Sub(found.Issued)/6
}

// Instance returns the instance to which the credentials with an access key id were issued, empty if
// they are not those of an instance.
func (s *Service) Instance(accessKeyID string) string {
	is, _ := s.session(accessKeyID)
	return is.Instance
}
