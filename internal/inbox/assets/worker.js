// Shows the notifications for a subscribed browser, also while the inbox is closed. A tap
// opens the page of the call, where the approver decides.

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { id, title, body, silent = false } = event.data.json();
  // A reminder replaces the notification of the call, and alerts people again.
  const options = { body, tag: id, data: id, silent, renotify: !silent, icon: "/assets/icon-192.png" };
  event.waitUntil(self.registration.showNotification(title, options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(`/approvals/${encodeURIComponent(event.notification.data)}`));
});

async function open(where) {
  const [page] = await self.clients.matchAll({ type: "window" });
  if (!page) return self.clients.openWindow(where);
  await page.focus().catch(() => {}); // a browser may not want that
  return page.navigate(where);
}
