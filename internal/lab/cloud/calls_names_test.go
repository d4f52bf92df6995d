package cloud

import "testing"

func TestNamesResource(t *testing.T) {
	for parameter, want := range map[string]bool{
		"InstanceId.1": true, "NetworkInterface.1.SubnetId": true, "GroupName": true, "RoleArn": true, "ResourceId.12": true,
		"Subnets.member.1": true, "TargetGroupArns.member.2": true, "DefaultActions.member.1.TargetGroupArn": true, "Targets.member.1.Id": true,
		"Name": true, "Names.member.1": true, "Filter.1.Name": false, "Tags.member.1.Key": false, "HealthCheckPath": false,
		"UserData": false, "PublicKeyMaterial": false, "Filter.1.Value.1": false, "ClientToken": false, "": false,
	} {
		if got := namesResource(parameter); got != want {
			t.Errorf("%q: %v", parameter, got)
		}
	}
}
