# The host that docs/recipes.md supposes, in namespaces of the test's own. The current folder is empty and writable.
#
# What is in /etc, /run and /usr/bin ends with the test, or leads to the files of the machine, which cannot be changed here.
# Ballast is in /usr/bin. Two servers answer at 10.1.0.7:8080 and 10.1.0.8:8080. systemctl and kubectl are stand-ins, because they
# need a running system and a cluster; ssh is one that runs its command on a second host, 192.0.2.12.
mkdir -p host/etc host/bin
mount -t tmpfs tmpfs /run
mkdir /run/ballast /run/ballast-announce /run/etc /run/bin
mount --bind /etc /run/etc
mount --bind /usr/bin /run/bin
mount -o remount,bind,ro /run/etc
mount -o remount,bind,ro /run/bin
mount --bind host/etc /etc
mount --bind host/bin /usr/bin
/run/bin/ln -s /run/bin/* /usr/bin/
ln -s /run/etc/* /etc/
rm -f /etc/ballast /etc/prometheus /etc/systemd
for name in systemctl ssh kubectl; do
    ln -sf "$RECIPES/$name" /usr/bin/
done
for name in ballast ballast-controller; do
    ln -sf "$PROGRAMS/$name" /usr/bin/
done
ln -s "$REPOSITORY/templates" templates
mkdir new
ln -s "$PROGRAMS/ballast" "$PROGRAMS/ballast-controller" new/

ip link add eth0 type veth peer name switch
ip link add network type bridge
ip link set network up
ip link set switch master network up
ip link set eth0 up
ip address add 192.0.2.11/24 dev eth0
for address in 10.1.0.7 10.1.0.8; do
    ip address add "$address/32" dev lo
done
python3 "$RECIPES/servers.py" 10.1.0.7:8080 10.1.0.8:8080 2>/dev/null &
curl -sS --retry 20 --retry-delay 1 --retry-all-errors http://10.1.0.7:8080/ http://10.1.0.8:8080/
