//! Annotations with valid values. A test in [`super::valid`] compares the keys with the lists in the source.

/// Every key, with valid values.
pub(crate) const WORDS: &[(&str, &[&str])] = &[
    (
        "ballast.dev/accept-proxy",
        &[
            "off",
            "10.0.0.0/8",
            "on ::ffff:10.0.0.0/104, fd00::/8",
            "0.0.0.0/0,::/0",
        ],
    ),
    ("ballast.dev/address-pool", &["gold", ""]),
    (
        "ballast.dev/algorithm",
        &["first", "random", "maglev", "source-port-hash"],
    ),
    (
        "ballast.dev/canary-header",
        &["X-Canary=1", "x-canary = 1", "A=b=c"],
    ),
    ("ballast.dev/canary-of", &["s0", "s1", "s2"]),
    ("ballast.dev/canary-weight", &["0", "40", "100"]),
    ("ballast.dev/connection-limit", &["-1", "1", "4294967295"]),
    ("ballast.dev/cookie-sticky-session", &["true", "f"]),
    ("ballast.dev/description", &["", "x", "é \"quoted\""]),
    ("ballast.dev/display-name", &["", "y"]),
    (
        "ballast.dev/external-port",
        &["8080", "80", "443", "80:443, 443:80", "53:1936"],
    ),
    (
        "ballast.dev/external-traffic-policy-mode",
        &["edge", "strict"],
    ),
    (
        "ballast.dev/health-check",
        &["off", "tcp", "http", "https", "udp"],
    ),
    (
        "ballast.dev/health-check-codes",
        &["200", "200-399,500", "100-599"],
    ),
    ("ballast.dev/health-check-fall", &["1", "20"]),
    (
        "ballast.dev/health-check-interval",
        &["1", "1s", "300s", "1500ms"],
    ),
    ("ballast.dev/health-check-path", &["/", "/x?y=1"]),
    (
        "ballast.dev/health-check-port",
        &["1", "65535", "a", "n", "u"],
    ),
    ("ballast.dev/health-check-rise", &["1", "10"]),
    ("ballast.dev/health-check-timeout", &["1s", "5m", "300"]),
    (
        "ballast.dev/host",
        &["a.example.com", "*.example.com", "A.example.com. [::1]"],
    ),
    ("ballast.dev/hostname", &["edge.example.com", "a.b,c.d"]),
    ("ballast.dev/hsts", &["1d", "4380h", "4000d"]),
    ("ballast.dev/ignore", &["false", "true"]),
    ("ballast.dev/take-over", &["false", "true"]),
    ("ballast.dev/internal", &["false", "true"]),
    ("ballast.dev/keep-address", &["true"]),
    (
        "ballast.dev/load-balancer-ips",
        &[
            "10.77.1.1",
            "192.0.2.1,fd77::1",
            "::ffff:192.0.2.1",
            "10.77.1.2",
        ],
    ),
    ("ballast.dev/mode", &["tcp", "http", "https", "tls"]),
    (
        "ballast.dev/node-selector",
        &[
            "role",
            "!x",
            "zone=lb1",
            "zone==lb2",
            "zone in (lb1, lb2), x notin (y)",
            "zone!=lb1",
        ],
    ),
    ("ballast.dev/on-endpoint-removed", &["keep", "close"]),
    (
        "ballast.dev/path",
        &["/", "-i /", "/, /a", "-i /A /b", "//", "/a/", "/a%20b"],
    ),
    ("ballast.dev/proxy-protocol", &["off", "v1", "v2"]),
    ("ballast.dev/redirect-https", &["true"]),
    ("ballast.dev/rewrite", &["strip", "keep", "/", "/z"]),
    ("ballast.dev/sharing-key", &["k"]),
    (
        "ballast.dev/source-ranges",
        &["", "10.0.0.1/8,::1/128", "0.0.0.0/0", "::ffff:0:0/96"],
    ),
    ("ballast.dev/sslTerm", &["true", "0"]),
    ("ballast.dev/target-node-selector", &["zone=lb1", "!zone"]),
    ("ballast.dev/timeout-client", &["off", "0", "1ms", "24d"]),
    ("ballast.dev/timeout-connect", &["1", "24d"]),
    ("ballast.dev/timeout-inspect", &["0", "5"]),
    ("ballast.dev/timeout-server", &["off", "1h30m"]),
    (
        "ballast.dev/tls-passthrough",
        &[
            "a.example.com",
            "*.example.com",
            "p.example.com a.example.com",
        ],
    ),
    (
        "ballast.dev/tls-secret",
        &["cert", "shop/cert", "LONG", "none"],
    ),
    ("ballast.dev/udp-timeout", &["1ms", "24d"]),
    ("ballast.dev/x-forwarded-for", &["true", "false"]),
    ("kube-vip.io/ignore", &["false", "true"]),
    ("kube-vip.io/loadbalancerHostname", &["vip.example.com"]),
    ("kube-vip.io/loadbalancerIPs", &["10.77.1.1"]),
    ("lbipam.cilium.io/ips", &["10.77.1.1"]),
    ("lbipam.cilium.io/sharing-key", &["k"]),
    ("loadbalancer.openstack.org/class", &["gold"]),
    ("loadbalancer.openstack.org/connection-limit", &["10"]),
    (
        "loadbalancer.openstack.org/default-tls-container-ref",
        &["cert", "none"],
    ),
    (
        "loadbalancer.openstack.org/enable-health-monitor",
        &["true", "false"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-delay",
        &["1", "300"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-max-retries",
        &["1", "10"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-max-retries-down",
        &["10"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-timeout",
        &["3", "300"],
    ),
    ("loadbalancer.openstack.org/hostname", &["os.example.com"]),
    ("loadbalancer.openstack.org/keep-floatingip", &["true"]),
    (
        "loadbalancer.openstack.org/lb-method",
        &[
            "ROUND_ROBIN",
            "LEAST_CONNECTIONS",
            "SOURCE_IP",
            "SOURCE_IP_PORT",
        ],
    ),
    (
        "loadbalancer.openstack.org/load-balancer-address",
        &["10.77.1.1"],
    ),
    (
        "loadbalancer.openstack.org/load-balancer-id",
        &["u0", "other"],
    ),
    (
        "loadbalancer.openstack.org/node-selector",
        &["zone=lb1, role"],
    ),
    (
        "loadbalancer.openstack.org/proxy-protocol",
        &["true", "v2", "false"],
    ),
    (
        "loadbalancer.openstack.org/timeout-client-data",
        &["0", "50000"],
    ),
    (
        "loadbalancer.openstack.org/timeout-member-connect",
        &["5000"],
    ),
    (
        "loadbalancer.openstack.org/timeout-member-data",
        &["0", "2073600000"],
    ),
    (
        "loadbalancer.openstack.org/timeout-tcp-inspect",
        &["0", "100"],
    ),
    (
        "loadbalancer.openstack.org/x-forwarded-for",
        &["true", "false"],
    ),
    ("metallb.io/address-pool", &["p"]),
    ("metallb.io/allow-shared-ip", &["k"]),
    ("metallb.io/loadBalancerIPs", &["10.77.1.1"]),
    ("metallb.universe.tf/address-pool", &["p", "q"]),
    ("metallb.universe.tf/allow-shared-ip", &["k", "l"]),
    ("metallb.universe.tf/loadBalancerIPs", &["192.0.2.1"]),
    ("service.antrea.io/allow-shared-load-balancer-ip", &["true"]),
    ("purelb.io/service-group", &["p"]),
    ("service.antrea.io/external-ip-pool", &["p"]),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-description",
        &["x"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-external",
        &["true"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-id",
        &["u"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-name",
        &["nlb"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-description",
        &["x"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-interval",
        &["10s", "5"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-mode",
        &["tcp", "http", "https"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-port",
        &["30080", "30053", "8080"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-retries",
        &["1", "20"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-timeout",
        &["2s", "60s"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-uri",
        &["/health"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-name",
        &["x"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-strategy",
        &["round-robin", "source-hash", "maglev-hash"],
    ),
    (
        "service.beta.kubernetes.io/load-balancer-source-ranges",
        &["", "10.0.0.0/8, fd00::/8"],
    ),
    (
        "service.beta.kubernetes.io/openstack-internal-load-balancer",
        &["true", "false"],
    ),
    (
        "serviceloadbalancer/lb.aclMatch",
        &["/", "-i /", "-i /q", "/q /r"],
    ),
    (
        "serviceloadbalancer/lb.algorithm",
        &["roundrobin", "leastconn", "first", "source"],
    ),
    ("serviceloadbalancer/lb.cookie-sticky-session", &["true"]),
    (
        "serviceloadbalancer/lb.host",
        &["c.example.com", "c.example.com d.example.com"],
    ),
    ("serviceloadbalancer/lb.sslTerm", &["true", "t"]),
];
