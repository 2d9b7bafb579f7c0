"""Servers of HTTP, one at each address. Each answers with its own address."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = (self.server.server_address[0] + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True


threads = []
for address in sys.argv[1:]:
    host, port = address.rsplit(":", 1)
    thread = Thread(target=Server((host, int(port)), Answer).serve_forever)
    thread.start()
    threads.append(thread)
for thread in threads:
    thread.join()
