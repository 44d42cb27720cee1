import { type FindingCode, type FindingRow, linkIs } from './facts.ts';

/** The findings about a hub and its branches, a part of the table of findings. */
export const HUB_FINDINGS: Record<Extract<FindingCode, `hub.${string}`>, FindingRow> = {
  'hub.unassigned': {
    level: 'amber',
    check: 'hub',
    message:
      'Orders name a branch that is not in the configuration. They are in the mirror here, and go to no branch.',
    remedy:
      'Add the branch that is named to [[branches]], then run: {restart}. Or say whose they are: {tillsync} branch assign NAME --store STORE',
  },
  'hub.unapplied': {
    level: 'amber',
    check: 'hub',
    message: 'Branches could not take in all that came down to them. It is kept there.',
    remedy:
      'At each branch that is named, look at it with: {tillsync} quarantine list. What nobody needs any more: {tillsync} quarantine drop ID',
  },
  'hub.certificate': {
    level: 'amber',
    check: 'hub.certificate',
    message: 'The certificate of the hub ends soon, or branches would not take it.',
    remedy: 'Put a good certificate and its key in place; the server reads them by itself.',
  },
  'hub.misuse': {
    level: 'amber',
    check: 'hub',
    message: 'A branch does what tillsync does not do by itself: somebody else may have its key.',
    remedy:
      'Look at the branch that is named. To end its key, then give it another: {tillsync} branch revoke NAME; {tillsync} branch invite NAME',
  },
  'hub.server': {
    level: 'amber',
    flow: 'hub.link',
    check: 'hub',
    message: 'The nats-server does not run with the configuration that tillsync wrote for it.',
    remedy:
      'Write it once more: {tillsync} hub server-config; then start the server with it: sudo systemctl restart tillsync-nats',
  },
  'hub.branches': {
    level: 'amber',
    check: 'hub.branches',
    message: 'Something is wrong at branches.',
    remedy: 'To see all of them, the worst first, run: {tillsync} branch list',
  },
  'hub.link': {
    level: 'amber',
    when: (facts) => linkIs('hub.link', facts),
    flow: 'hub.link',
    check: 'hub',
    inDoctor: 'Check the nats-server and the network between.',
    message:
      'The connection between the hub and its branches is down. What waits stays and follows by itself.',
    remedy: 'Check the nats-server and the network between, then run: {tillsync} doctor',
    remedies: {
      refuses:
        'The nats-server takes no connections: start it at the hub: sudo systemctl start tillsync-nats',
      'no-name': 'Check the spelling of link.hub, or hub.nats at the hub, and the DNS of this machine.',
      'no-dns': 'The name server that this machine asks gives no answer: check the router and its DNS.',
      'no-line': 'This machine is in no network that leads out: check its cable or Wi-Fi, and the router.',
      silent: "The hub's machine gives no answer: check that it is on, its firewall, and the VPN between.",
      'certificate-date':
        "Check this machine's clock. Where it is right, the hub's certificate has expired: renew it at the hub.",
      'certificate-trust':
        'The hub shows a certificate that this machine does not trust: name the file of its authority in link.ca_file, or invite the branch again.',
    },
  },
  'hub.refused': {
    level: 'red',
    when: (facts) => linkIs('hub.refused', facts),
    flow: 'hub.link',
    check: 'hub',
    message: 'The hub rejected this branch.',
    remedy:
      'If two machines run this branch, stop tillsync on one of them. Otherwise join again: at the hub, run tillsync branch invite NAME; here, run {tillsync} init --join - and paste the line. Pending changes are saved here.',
  },
};
