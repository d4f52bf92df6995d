#!/bin/sh
# Creates or destroys a VPC with an instance by the AWS CLI: cli.sh create|destroy. It creates only
# what is not there and prints how many things it changed, as "changed=N".
set -eu
export AWS_DEFAULT_REGION=us-east-1 AWS_PAGER=
changed=0

ec2() { aws --endpoint-url "$ENDPOINT" --output text ec2 "$@"; }
named() { printf 'Name=tag:Name,Values=cli'; }
tags() { printf 'ResourceType=%s,Tags=[{Key=Name,Value=cli}]' "$1"; }
note() { changed=$((changed + 1)); }

# find DESCRIBE QUERY sets found to ids, empty if there is none.
find() {
  found=$(ec2 "$1" --filters "$(named)" --query "$2")
  if [ "$found" = None ]; then found=; fi
}

instances() {
  found=$(ec2 describe-instances --filters "$(named)" Name=instance-state-name,Values=pending,running,stopping,stopped \
    --query 'Reservations[].Instances[].InstanceId')
}

key() { found=$(ec2 describe-key-pairs --filters Name=key-name,Values=cli --query 'KeyPairs[].KeyPairId'); }

iam() { aws --endpoint-url "$ENDPOINT" --output text iam "$@"; }

# user makes a user with a tag, a key and policies.
user() {
  if ! iam get-user --user-name cli >/dev/null 2>&1; then
    note
    policy=$(iam create-policy --policy-name cli --policy-document "$look" --query Policy.Arn)
    iam create-user --user-name cli --path /clients/ --permissions-boundary "$policy" --tags Key=team,Value=cli >/dev/null
    iam put-user-policy --user-name cli --policy-name look --policy-document "$look"
    iam attach-user-policy --user-name cli --policy-arn "$policy"
    iam create-access-key --user-name cli --query 'AccessKey.[AccessKeyId,SecretAccessKey]' >/work/key.txt
  fi
  read -r id secret </work/key.txt
  [ "$(AWS_ACCESS_KEY_ID=$id AWS_SECRET_ACCESS_KEY=$secret AWS_SESSION_TOKEN='' aws --endpoint-url "$ENDPOINT" --output text sts get-caller-identity --query Arn)" = \
    "$(iam get-user --user-name cli --query User.Arn)" ]
  [ "$(iam get-user-policy --user-name cli --policy-name look --query 'PolicyDocument.Statement[0].Action')" = 'ec2:Describe*' ]
  [ "$(iam list-users --path-prefix /clients/ --query 'length(Users)')" = 1 ]
  [ "$(iam list-user-tags --user-name cli --query 'Tags[].Value')" = cli ]
}
look='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}]}'

unuser() {
  iam get-user --user-name cli >/dev/null 2>&1 || return 0
  note
  for key in $(iam list-access-keys --user-name cli --query 'AccessKeyMetadata[].AccessKeyId'); do
    iam delete-access-key --user-name cli --access-key-id "$key"
  done
  iam delete-user-policy --user-name cli --policy-name look
  for policy in $(iam list-attached-user-policies --user-name cli --query 'AttachedPolicies[].PolicyArn'); do
    iam detach-user-policy --user-name cli --policy-arn "$policy"
    iam delete-user-permissions-boundary --user-name cli
    iam delete-policy --policy-arn "$policy"
  done
  iam delete-user --user-name cli
}

create() {
  user
  aws --endpoint-url "$ENDPOINT" sts get-caller-identity --query Arn --output text | grep -q '^arn:aws:'
  find describe-vpcs 'Vpcs[].VpcId'
  vpc=$found
  if [ -z "$vpc" ]; then
    note
    vpc=$(ec2 create-vpc --cidr-block 10.62.0.0/16 --tag-specifications "$(tags vpc)" --query Vpc.VpcId)
    ec2 wait vpc-available --vpc-ids "$vpc"
    ec2 modify-vpc-attribute --vpc-id "$vpc" --enable-dns-hostnames
  fi
  found=$(ec2 describe-vpc-attribute --vpc-id "$vpc" --attribute enableDnsHostnames --query EnableDnsHostnames.Value)
  [ "$found" = True ]
  find describe-subnets 'Subnets[].SubnetId'
  subnet=$found
  if [ -z "$subnet" ]; then
    note
    subnet=$(ec2 create-subnet --vpc-id "$vpc" --cidr-block 10.62.1.0/24 --availability-zone us-east-1a --tag-specifications "$(tags subnet)" --query Subnet.SubnetId)
    ec2 modify-subnet-attribute --subnet-id "$subnet" --map-public-ip-on-launch
  fi
  find describe-internet-gateways 'InternetGateways[].InternetGatewayId'
  gateway=$found
  if [ -z "$gateway" ]; then
    note
    gateway=$(ec2 create-internet-gateway --tag-specifications "$(tags internet-gateway)" --query InternetGateway.InternetGatewayId)
    ec2 attach-internet-gateway --internet-gateway-id "$gateway" --vpc-id "$vpc"
  fi
  find describe-route-tables 'RouteTables[].RouteTableId'
  table=$found
  if [ -z "$table" ]; then
    note
    table=$(ec2 create-route-table --vpc-id "$vpc" --tag-specifications "$(tags route-table)" --query RouteTable.RouteTableId)
    ec2 create-route --route-table-id "$table" --destination-cidr-block 0.0.0.0/0 --gateway-id "$gateway" >/dev/null
    ec2 associate-route-table --route-table-id "$table" --subnet-id "$subnet" >/dev/null
  fi
  find describe-security-groups 'SecurityGroups[].GroupId'
  group=$found
  if [ -z "$group" ]; then
    note
    group=$(ec2 create-security-group --group-name cli --description 'Made by the AWS CLI' --vpc-id "$vpc" --tag-specifications "$(tags security-group)" --query GroupId)
    ec2 authorize-security-group-ingress --group-id "$group" --protocol tcp --port 22 --cidr "$OPERATOR" >/dev/null
  fi
  key
  if [ -z "$found" ]; then
    note
    ec2 import-key-pair --key-name cli --public-key-material fileb:///work/key.pub >/dev/null
  fi
  instances
  instance=$found
  if [ -z "$instance" ]; then
    note
    image=$(aws --endpoint-url "$ENDPOINT" --output text ssm get-parameter --name /aws/service/debian/release/13/latest/amd64 --query Parameter.Value)
    instance=$(ec2 run-instances --image-id "$image" --instance-type t3.small --key-name cli --subnet-id "$subnet" --security-group-ids "$group" \
      --tag-specifications "$(tags instance)" --metadata-options HttpTokens=required --query 'Instances[0].InstanceId')
  fi
  ec2 wait instance-running --instance-ids "$instance"
  find describe-addresses 'Addresses[].AllocationId'
  address=$found
  if [ -z "$address" ]; then
    note
    address=$(ec2 allocate-address --domain vpc --tag-specifications "$(tags elastic-ip)" --query AllocationId)
    ec2 associate-address --allocation-id "$address" --instance-id "$instance" >/dev/null
  fi
  ec2 describe-instances --instance-ids "$instance" --query 'Reservations[0].Instances[0].PublicIpAddress' >/work/address
}

destroy() {
  unuser
  find describe-addresses 'Addresses[].AllocationId'
  for address in $found; do
    note
    association=$(ec2 describe-addresses --allocation-ids "$address" --query 'Addresses[0].AssociationId')
    ec2 disassociate-address --association-id "$association"
    ec2 release-address --allocation-id "$address"
  done
  instances
  for instance in $found; do
    note
    ec2 terminate-instances --instance-ids "$instance" >/dev/null
    ec2 wait instance-terminated --instance-ids "$instance"
  done
  key
  if [ -n "$found" ]; then
    note
    ec2 delete-key-pair --key-name cli
  fi
  find describe-security-groups 'SecurityGroups[].GroupId'
  for group in $found; do
    note
    ec2 delete-security-group --group-id "$group"
  done
  find describe-route-tables 'RouteTables[].RouteTableId'
  for table in $found; do
    note
    associations=$(ec2 describe-route-tables --route-table-ids "$table" --query 'RouteTables[0].Associations[].RouteTableAssociationId')
    for association in $associations; do
      ec2 disassociate-route-table --association-id "$association"
    done
    ec2 delete-route-table --route-table-id "$table"
  done
  find describe-internet-gateways 'InternetGateways[].InternetGatewayId'
  for gateway in $found; do
    note
    vpc=$(ec2 describe-internet-gateways --internet-gateway-ids "$gateway" --query 'InternetGateways[0].Attachments[0].VpcId')
    ec2 detach-internet-gateway --internet-gateway-id "$gateway" --vpc-id "$vpc"
    ec2 delete-internet-gateway --internet-gateway-id "$gateway"
  done
  find describe-subnets 'Subnets[].SubnetId'
  for subnet in $found; do
    note
    ec2 delete-subnet --subnet-id "$subnet"
  done
  find describe-vpcs 'Vpcs[].VpcId'
  for vpc in $found; do
    note
    ec2 delete-vpc --vpc-id "$vpc"
  done
}

"$1"
echo "changed=$changed"
