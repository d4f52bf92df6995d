package main

// The prices are On-Demand list prices of Linux in US dollars. They were noted on pricesNoted from
// public copies of AWS's price list, which agreed with each other, and not from AWS itself.
const (
	pricesNoted = "2026-11-23"
	// priceList has today's prices.
	priceList = "https://aws.amazon.com/ec2/pricing/on-demand/"

	// publicIPv4 is the price of an address for an hour, in use or not, in every region, since
	// 2024-02-01 (https://aws.amazon.com/vpc/pricing/).
	publicIPv4 = 0.005
	// hoursInMonth is the number by which AWS divides a monthly price to get an hourly price.
	hoursInMonth = 730
)

// price holds the prices in a region.
type price struct {
	instance map[string]float64 // type -> an hour
	gp3      float64            // a GiB for a month (https://aws.amazon.com/ebs/pricing/)
}

// prices has the regions whose prices are known. The question says so where they are not.
var prices = map[string]price{
	"eu-central-1": {map[string]float64{"t3.medium": 0.0480}, 0.0952},
	"eu-west-1":    {map[string]float64{"t3.medium": 0.0456}, 0.0880},
	"us-east-1":    {map[string]float64{"t3.medium": 0.0416}, 0.0800},
	"us-east-2":    {map[string]float64{"t3.medium": 0.0416}, 0.0800},
	"us-west-2":    {map[string]float64{"t3.medium": 0.0416}, 0.0800},
}
