"""Create or destroy a VPC with an instance by boto3: boto.py create|destroy.

It creates only what is not there and prints how many things it changed, as "changed=N"."""

import json
import sys

import boto3

settings = json.load(open("/work/settings.json"))
session = boto3.Session(region_name="us-east-1")
ec2 = session.client("ec2", endpoint_url=settings["endpoint"])
who = session.client("sts", endpoint_url=settings["endpoint"]).get_caller_identity()
assert who["Arn"].startswith("arn:aws:"), who
iam = session.client("iam", endpoint_url=settings["endpoint"])
changed = 0
NAME = "boto"


def note():
    global changed
    changed += 1


def tags(kind):
    return [{"ResourceType": kind, "Tags": [{"Key": "Name", "Value": NAME}]}]


def named(operation, result, **more):
    """All resources with the Name tag, by the paginator with the smallest pages."""
    filters = [{"Name": "tag:Name", "Values": [NAME]}] + more.pop("Filters", [])
    pages = ec2.get_paginator(operation).paginate(Filters=filters, PaginationConfig={"PageSize": 5}, **more)
    return [r for page in pages for r in page[result]]


def ensure(operation, result, make):
    found = named(operation, result)
    if found:
        assert len(found) == 1, found
        return found[0]
    note()
    return make()


def ensure_subnet(vpc, cidr):
    found = named("describe_subnets", "Subnets", Filters=[{"Name": "cidr-block", "Values": [cidr]}])
    if found:
        return found[0]["SubnetId"]
    note()
    made = ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone="us-east-1a", TagSpecifications=tags("subnet"))
    return made["Subnet"]["SubnetId"]


def instances():
    live = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    return [i for r in named("describe_instances", "Reservations", Filters=live) for i in r["Instances"]]


def create():
    role()
    vpc = ensure("describe_vpcs", "Vpcs", lambda: ec2.create_vpc(CidrBlock="10.61.0.0/16", TagSpecifications=tags("vpc"))["Vpc"])["VpcId"]
    ec2.get_waiter("vpc_available").wait(VpcIds=[vpc])
    for attribute, key in ("enableDnsSupport", "EnableDnsSupport"), ("enableDnsHostnames", "EnableDnsHostnames"):
        if not ec2.describe_vpc_attribute(VpcId=vpc, Attribute=attribute)[key]["Value"]:
            note()
            ec2.modify_vpc_attribute(VpcId=vpc, **{key: {"Value": True}})
    subnet = ensure_subnet(vpc, "10.61.1.0/24")
    for n in range(2, 8):  # more than one page
        ensure_subnet(vpc, f"10.61.{n}.0/24")
    assert len(named("describe_subnets", "Subnets")) == 7
    ec2.get_waiter("subnet_available").wait(SubnetIds=[subnet])
    gateway = ensure("describe_internet_gateways", "InternetGateways", lambda: ec2.create_internet_gateway(TagSpecifications=tags("internet-gateway"))["InternetGateway"])
    if not gateway["Attachments"]:
        note()
        ec2.attach_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"], VpcId=vpc)
    table = ensure("describe_route_tables", "RouteTables", lambda: ec2.create_route_table(VpcId=vpc, TagSpecifications=tags("route-table"))["RouteTable"])
    if not any(r.get("DestinationCidrBlock") == "0.0.0.0/0" for r in table["Routes"]):
        note()
        ec2.create_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway["InternetGatewayId"])
    if not any(a.get("SubnetId") == subnet for a in table["Associations"]):
        note()
        ec2.associate_route_table(RouteTableId=table["RouteTableId"], SubnetId=subnet)
    group = ensure("describe_security_groups", "SecurityGroups", lambda: ec2.create_security_group(GroupName=NAME, Description="Made by boto3", VpcId=vpc, TagSpecifications=tags("security-group")) | {"IpPermissions": []})
    if not group["IpPermissions"]:
        note()
        ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": settings["operator"], "Description": "SSH"}]}
        rules = ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[ssh])["SecurityGroupRules"]
        assert rules[0]["CidrIpv4"] == settings["operator"], rules
    if not ec2.describe_key_pairs(Filters=[{"Name": "key-name", "Values": [NAME]}])["KeyPairs"]:
        note()
        ec2.import_key_pair(KeyName=NAME, PublicKeyMaterial=settings["public_key"].encode())
    found = instances()
    if not found:
        note()
        ssm = session.client("ssm", endpoint_url=settings["endpoint"])
        image = ssm.get_parameter(Name="/aws/service/debian/release/13/latest/amd64")["Parameter"]["Value"]
        found = ec2.run_instances(
            ImageId=image, InstanceType="t3.small", MinCount=1, MaxCount=1, KeyName=NAME, SubnetId=subnet,
            SecurityGroupIds=[group["GroupId"]], TagSpecifications=tags("instance") + tags("volume"),
            MetadataOptions={"HttpTokens": "required"},
        )["Instances"]
    instance = found[0]["InstanceId"]
    ec2.get_waiter("instance_running").wait(InstanceIds=[instance], WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    address = elastic_ip()
    if address.get("InstanceId") != instance:
        note()
        ec2.associate_address(AllocationId=address["AllocationId"], InstanceId=instance)
    ec2.get_waiter("instance_status_ok").wait(InstanceIds=[instance], WaiterConfig={"Delay": 1, "MaxAttempts": 240})
    resource = session.resource("ec2", endpoint_url=settings["endpoint"]).Instance(instance)
    assert resource.public_ip_address == address["PublicIp"], resource.public_ip_address
    open("/work/address", "w").write(address["PublicIp"])


TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}], "Version": "2012-10-17"}


def role():
    """A role in an instance profile."""
    try:
        iam.create_role(RoleName=NAME, Path="/clients/", AssumeRolePolicyDocument=json.dumps(TRUST), Tags=[{"Key": "team", "Value": NAME}])
        note()
        iam.create_instance_profile(InstanceProfileName=NAME)
        iam.add_role_to_instance_profile(InstanceProfileName=NAME, RoleName=NAME)
    except iam.exceptions.EntityAlreadyExistsException:
        pass
    profile = iam.get_instance_profile(InstanceProfileName=NAME)["InstanceProfile"]
    assert profile["Roles"][0]["AssumeRolePolicyDocument"] == TRUST, profile
    assert [r["Path"] for page in iam.get_paginator("list_roles").paginate(PathPrefix="/clients/") for r in page["Roles"]] == ["/clients/"]


def no_role():
    try:
        iam.delete_role(RoleName=NAME)
    except iam.exceptions.NoSuchEntityException:
        return
    except iam.exceptions.DeleteConflictException:
        note()
    iam.remove_role_from_instance_profile(InstanceProfileName=NAME, RoleName=NAME)
    iam.delete_instance_profile(InstanceProfileName=NAME)
    iam.delete_role(RoleName=NAME)


def elastic_ip():
    found = ec2.describe_addresses(Filters=[{"Name": "tag:Name", "Values": [NAME]}])["Addresses"]
    if found:
        return found[0]
    note()
    return ec2.allocate_address(Domain="vpc", TagSpecifications=tags("elastic-ip"))


def destroy():
    no_role()
    for address in ec2.describe_addresses(Filters=[{"Name": "tag:Name", "Values": [NAME]}])["Addresses"]:
        note()
        if "AssociationId" in address:
            ec2.disassociate_address(AssociationId=address["AssociationId"])
        ec2.release_address(AllocationId=address["AllocationId"])
    doomed = [i["InstanceId"] for i in instances()]
    if doomed:
        note()
        ec2.terminate_instances(InstanceIds=doomed)
        ec2.get_waiter("instance_terminated").wait(InstanceIds=doomed, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    for key in ec2.describe_key_pairs(Filters=[{"Name": "key-name", "Values": [NAME]}])["KeyPairs"]:
        note()
        ec2.delete_key_pair(KeyPairId=key["KeyPairId"])
    for group in named("describe_security_groups", "SecurityGroups"):
        note()
        ec2.delete_security_group(GroupId=group["GroupId"])
    for table in named("describe_route_tables", "RouteTables"):
        note()
        for association in table["Associations"]:
            ec2.disassociate_route_table(AssociationId=association["RouteTableAssociationId"])
        ec2.delete_route_table(RouteTableId=table["RouteTableId"])
    for gateway in named("describe_internet_gateways", "InternetGateways"):
        note()
        for attachment in gateway["Attachments"]:
            ec2.detach_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"], VpcId=attachment["VpcId"])
        ec2.delete_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"])
    for subnet in named("describe_subnets", "Subnets"):
        note()
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    for vpc in named("describe_vpcs", "Vpcs"):
        note()
        ec2.delete_vpc(VpcId=vpc["VpcId"])


{"create": create, "destroy": destroy}[sys.argv[1]]()
print(f"changed={changed}")
