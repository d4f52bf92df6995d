package cloud

import "testing"

func TestNamesResource(t *testing.T) {
	for parameter, want := range map[string]bool{
		"InstanceId.1": true, "NetworkInterface.1.SubnetId": true, "GroupName": true, "RoleArn": true, "ResourceId.12": true,
		"UserData": false, "PublicKeyMaterial": false, "Filter.1.Value.1": false, "ClientToken": false, "": false,
	} {
		if got := namesResource(parameter); got != want {
			t.Errorf("%q: %v", parameter, got)
		}
	}
}
