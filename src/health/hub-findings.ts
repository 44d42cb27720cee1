import { type FindingCode, type FindingRow, linkIs } from './facts.ts';

/** The findings about a hub and its branches, a part of the table of findings. */
export const HUB_FINDINGS: Record<Extract<FindingCode, `hub.${string}`>, FindingRow> = {
  'hub.unassigned': {
    level: 'amber',
    check: 'hub',
    message:
      "Some orders name a branch that isn't in the configuration. They are saved in the hub's mirror, but no branch receives them.",
    remedy:
      'If the branch is missing, add it to [[branches]], then run: {restart}. If the orders belong to another branch, run: {tillsync} branch assign NAME --store STORE',
  },
  'hub.unapplied': {
    level: 'amber',
    check: 'hub',
    message: "Some branches couldn't apply all data from the hub. The data is saved at the branch.",
    remedy:
      'At each branch shown in the details, run: {tillsync} quarantine list. To delete an entry that is no longer needed, run: {tillsync} quarantine delete ID',
  },
  'hub.certificate': {
    level: 'amber',
    check: 'hub.certificate',
    message: "The hub's certificate expires soon, or branches don't trust it.",
    remedy: 'Install a valid certificate and its key. The server loads them automatically.',
  },
  'hub.misuse': {
    level: 'amber',
    check: 'hub',
    message: 'A branch behaves as tillsync never does. Someone else may have its key.',
    remedy:
      'Check the branch shown in the details. To revoke its key, run: {tillsync} branch revoke NAME. To give it a new key, run: {tillsync} branch invite NAME',
  },
  'hub.server': {
    level: 'amber',
    flow: 'hub.link',
    check: 'hub',
    message: "The nats-server isn't using the configuration that tillsync wrote for it.",
    remedy:
      'To write the configuration again and load it, run: {tillsync} hub server-config; sudo systemctl restart tillsync-nats',
  },
  'hub.branches': {
    level: 'amber',
    check: 'hub.branches',
    message: 'Some branches have problems.',
    remedy: 'To list all branches, worst first, run: {tillsync} branch list',
  },
  'hub.link': {
    level: 'amber',
    when: (facts) => linkIs('hub.link', facts),
    flow: 'hub.link',
    check: 'hub',
    inDoctor: 'Check the nats-server and the network.',
    message:
      'The hub and its branches are disconnected. Pending data is saved, and tillsync sends it automatically later.',
    remedy: 'Check the nats-server and the network. Then run: {tillsync} doctor',
    remedies: {
      refuses:
        'The nats-server refuses connections. To start it, run at the hub: sudo systemctl start tillsync-nats',
      'no-name': "Check the spelling of link.hub (at the hub: hub.nats) and this machine's DNS.",
      'no-dns': "This machine's name server doesn't answer. Check the router and its DNS.",
      'no-line': 'This machine has no network connection. Check its cable or Wi-Fi, and the router.',
      silent: "The hub's machine doesn't answer. Check that it is on, its firewall, and the VPN.",
      'certificate-date':
        "Check this machine's clock. If the time is right, the hub's certificate has expired: renew it at the hub.",
      'certificate-trust':
        "This machine doesn't trust the hub's certificate. Set link.ca_file to the file of its authority, or invite the branch again.",
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
