package enforcer

type rates struct{}
